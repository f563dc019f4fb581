//! What a page contains. With `HALOSCOPE_REPORT` set to a path, the example is written there to be looked at.

use haloscope::Array;

use base64::Engine as _;

use super::*;

fn png(array: &Array) -> Vec<u8> {
    let (height, width) = (array.shape()[2], array.shape()[3]);
    let pixel = |row: usize, column: usize| {
        [0, 1, 2].map(|channel| (array[[0, channel, row, column]].clamp(0.0, 1.0) * 255.0) as u8)
    };
    let picture = image::RgbImage::from_fn(width as u32, height as u32, |column, row| {
        image::Rgb(pixel(row as usize, column as usize))
    });
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).expect("a PNG");
    bytes.into_inner()
}

fn picture(caption: &str, array: &Array) -> Picture {
    let scale = Some(ValueScale { black: 0.0, white: 1.0, unit: "where white is 1".into() });
    Picture { caption: caption.into(), png: png(array), scale, panels: Vec::new() }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn example() -> Report {
    let scene = haloscope::phantom::landscape(320, 480).expect("a scene");
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let noisy = scene.mapv(|value| value + 0.5 * noise());
    let better = scene.mapv(|value| value + 0.06 * noise());
    let difference = (&better - &scene).mapv(|value| 8.0 * value.abs());
    let iterations = (1..=30).map(|iteration| {
        let t = f64::from(iteration);
        Iteration {
            number: iteration as usize,
            data_term: Some(3.0 + 900.0 * (-0.4 * t).exp()),
            psnr: Some(31.4 - 9.0 * (-0.2 * t).exp()),
            ssim: Some(0.9 - 0.4 * (-0.2 * t).exp()),
            seconds: vec![
                0.11 + 0.01 * (t * 1.7).sin(),
                0.32 + 0.03 * (t * 0.9).cos(),
                0.04,
                0.02,
                0.005,
            ],
        }
    });
    Report {
        title: "Deblurring in colour".into(),
        subtitle:
            "Three blurred, noisy frames of a landscape, reconstructed by plug-and-play proximal \
                   gradient descent with a learned denoiser on 2 ranks."
                .into(),
        comparison: Some(Comparison {
            before: picture("Input", &noisy),
            after: picture("Reconstruction", &better),
        }),
        pictures: vec![
            picture("Truth", &scene),
            picture("Input", &noisy),
            picture("Reconstruction", &better),
            picture("Difference to the truth, 8 times enlarged", &difference),
        ],
        summary: Table {
            columns: texts(&["", "PSNR", "SSIM", "data term"]),
            rows: vec![
                texts(&["Input", "22.41 dB", "0.612", "903.1"]),
                texts(&["Reconstruction", "31.38 dB", "0.921", "3.006"]),
                texts(&["Gain", "+8.97 dB", "+0.309", ""]),
            ],
        },
        ranks: Table {
            columns: texts(&["rank", "data", "prior", "waiting"]),
            rows: vec![
                texts(&["0", "1.21 s", "5.80 s", "0.02 s"]),
                texts(&["1", "0.83 s", "5.79 s", "0.41 s"]),
            ],
        },
        components: texts(&["data", "prior", "communication", "waiting", "other"]),
        iterations: iterations.collect(),
        parameters: [
            ("problem", "deblur"),
            ("size", "480 × 320, 3 channels"),
            ("operators", "3 Gaussian blurs, σ 1, 2 and 3"),
            ("noise", "σ 0.03, 0.05, 0.04"),
            ("method", "pgd, step 0.5, 30 iterations"),
            ("prior", "dncnn, σ 0.05"),
            ("tiling", "overlap, patch 256, overlap 32"),
            ("ranks", "2 threads"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        settings: vec![("solver.method".into(), "\"pgd\"".into())],
        footer: "haloscope 0.1.0, 16 seconds".into(),
    }
}

/// The tags of a page, checked to be closed in order.
fn tags(page: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let mut rest = page;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("a tag ends");
        rest = after;
        let name = tag.split([' ', '/', '\n']).find(|part| !part.is_empty()).expect("a name");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
        } else if !tag.ends_with('/') && !["!doctype", "meta", "img", "input"].contains(&name) {
            open.push(name);
            if name == "style" || name == "script" {
                let (_, end) = rest.split_once(&format!("</{name}>")).expect("an end");
                rest = end;
                open.pop();
            }
        }
        all.push(tag.to_owned());
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

#[test]
fn page_is_whole_and_asks_for_nothing_from_outside() {
    let page = example().to_html();
    if let Ok(path) = std::env::var("HALOSCOPE_REPORT") {
        std::fs::write(path, &page).expect("the page is written");
    }
    let tags = tags(&page);
    let count = |name: &str| tags.iter().filter(|tag| tag.split(' ').next() == Some(name)).count();
    assert_eq!((count("svg"), count("section"), count("table"), count("input")), (4, 7, 3, 1));
    assert_eq!(count("img"), 6);
    assert_eq!((count("link"), count("iframe"), count("script")), (0, 0, 1));
    for outside in ["http:", "https:", "//www", "@import", "url(", "href="] {
        assert!(!page.contains(outside), "{outside}");
    }
    let sources = tags.iter().filter_map(|tag| tag.split_once("src=\"")).map(|(_, source)| source);
    assert!(sources.clone().count() == 6);
    for source in sources {
        assert!(source.starts_with("data:image/png;base64,"));
    }
    assert!(page.contains("default-src 'none'") && !page.contains("{{"));
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
}

#[test]
fn pictures_are_inside_to_the_byte() {
    let report = example();
    let page = report.to_html();
    let embedded: Vec<Vec<u8>> = page
        .split("src=\"data:image/png;base64,")
        .skip(1)
        .map(|rest| STANDARD.decode(rest.split('"').next().expect("an end")).expect("base64"))
        .collect();
    let comparison = report.comparison.expect("two pictures");
    let mut expected = vec![comparison.after.png, comparison.before.png];
    expected.extend(report.pictures.into_iter().map(|picture| picture.png));
    assert_eq!(embedded, expected);
    assert!(page.contains("width=\"480\" height=\"320\""));
}

#[test]
fn all_text_is_escaped() {
    let evil = "<script>alert('1')</script>\" onload=\"x & {{title}} \0";
    let text = || evil.to_owned();
    let picture = || Picture {
        caption: text(),
        png: vec![1, 2, 3],
        scale: Some(ValueScale { black: 0.0, white: f32::NAN, unit: text() }),
        panels: vec![Panel { caption: text(), width: 1 }],
    };
    let report = Report {
        title: text(),
        subtitle: text(),
        comparison: Some(Comparison { before: picture(), after: picture() }),
        pictures: vec![picture()],
        summary: Table { columns: vec![text()], rows: vec![vec![text(), text()]] },
        ranks: Table { columns: vec![text()], rows: vec![vec![text(), text()]] },
        components: vec![text()],
        iterations: vec![Iteration {
            number: 1,
            data_term: Some(1.0),
            psnr: Some(2.0),
            ssim: Some(0.5),
            seconds: vec![1.0],
        }],
        parameters: vec![(text(), text())],
        settings: vec![(text(), text())],
        footer: text(),
    };
    let page = report.to_html();
    let tags = tags(&page);
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 1);
    assert!(tags.iter().all(|tag| !tag.contains(" onload=\"")));
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x &amp; {{title}} \u{fffd}"));
    assert!(!page.contains('\0'));
}

#[test]
fn a_picture_of_slices_has_a_line_in_each_of_them() {
    let mut report = example();
    let panel = |caption: &str, width: usize| Panel { caption: caption.into(), width };
    if let Some(comparison) = &mut report.comparison {
        comparison.before.panels =
            vec![panel("depth 8", 240), panel("height 9", 120), panel("width 10", 120)];
    }
    let page = report.to_html();
    let inputs = tags(&page).iter().filter(|tag| tag.starts_with("input")).count();
    assert_eq!(inputs, 3);
    assert!(page.contains("from the left: depth 8, height 9, width 10 (counted from 0)"));
    // The left half of each slice, and not of all of them together.
    assert!(page.contains("0.0000% 0,calc(0.0000% + 50.0000%*var(--at)) 0,"), "the first slice");
    assert!(page.contains("75.0000% 0,calc(75.0000% + 25.0000%*var(--at)) 0,"), "the last slice");
    assert!(page.contains("aria-label=\"How much of Input is shown at height 9\""));
}

#[test]
fn values_have_a_few_digits() {
    let values = [0.0, 1.0, -0.125, 0.023_456_7, 1234.56, 65535.0, 4.2e-7, -3e8];
    let expected = ["0", "1", "-0.125", "0.02346", "1235", "65535", "4.20e-7", "-3.00e8"];
    assert_eq!(values.map(figure), expected);
    let page = example().to_html();
    assert!(page.contains("<span>1</span><span class=\"unit\">where white is 1</span>"));
}

#[test]
fn empty_parts_are_left_out() {
    let page = Report { title: "Nothing".into(), ..Report::default() }.to_html();
    let tags = tags(&page);
    assert!(!tags.iter().any(|tag| ["section", "svg", "table", "img"].contains(&&tag[..])));
    assert!(page.contains("<h1>Nothing</h1>"));
}
