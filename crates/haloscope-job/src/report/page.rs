//! The report of a run: one HTML file that needs nothing else, not even a network.
//!
//! Pictures are inside as text, plots are inline SVG, and the page forbids itself to load anything. It is light or
//! dark as the reader's system is, and fits a phone. All text is escaped; what it says is the caller's.

use std::fmt::Write;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;

use super::chart::{self, Scale};
use super::escape;

/// What is shown, in the order of the page. Parts that are empty are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// The heading, and the title of the window.
    pub title: String,
    /// A sentence below it.
    pub subtitle: String,
    /// The two pictures under a slider.
    pub comparison: Option<Comparison>,
    /// Pictures side by side: the difference, slices, …
    pub pictures: Vec<Picture>,
    /// The result in numbers.
    pub summary: Table,
    /// Where the time of each rank went, if there are several.
    pub ranks: Table,
    /// The names of `Iteration::seconds`: `data`, `prior`, …
    pub components: Vec<String>,
    /// What the plots show.
    pub iterations: Vec<Iteration>,
    /// Names and values.
    pub parameters: Vec<(String, String)>,
    /// The keys of the job file and their values.
    pub settings: Vec<(String, String)>,
    /// The last line: version, date, machine.
    pub footer: String,
}

/// A picture and what it shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    /// A few words.
    pub caption: String,
    /// A PNG file.
    pub png: Vec<u8>,
    /// What its shades mean.
    pub scale: Option<ValueScale>,
    /// Its parts, from the left; none if it is one.
    pub panels: Vec<Panel>,
}

/// The values that a picture shows as black and white.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueScale {
    /// And all below it.
    pub black: f32,
    /// And all above it.
    pub white: f32,
    /// In a few words.
    pub unit: String,
}

/// A part of a picture: a slice of a volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panel {
    /// Which slice it is.
    pub caption: String,
    /// In pixels.
    pub width: usize,
}

/// Two pictures of the same size and parts.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// On the left of the slider.
    pub before: Picture,
    /// On the right.
    pub after: Picture,
}

/// A table whose first column names the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

/// What is known of an iteration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Iteration {
    /// Its number.
    pub number: usize,
    /// The data term.
    pub data_term: Option<f64>,
    /// Decibels, where the truth is known.
    pub psnr: Option<f64>,
    /// Structural similarity, where the truth is known.
    pub ssim: Option<f64>,
    /// Seconds of each component, which add up to the iteration.
    pub seconds: Vec<f64>,
}

const TEMPLATE: &str = include_str!("template.html");

impl Report {
    /// The whole page.
    pub(crate) fn to_html(&self) -> String {
        let mut page = String::new();
        // One pass over the template, so that text with braces in it stays text.
        let mut rest = TEMPLATE;
        while let Some((before, after)) = rest.split_once("{{") {
            page.push_str(before);
            let (name, after) = after.split_once("}}").unwrap_or((after, ""));
            match name {
                "title" => page.push_str(&escape(&self.title)),
                "heading" => self.write_heading(&mut page),
                "comparison" => self.write_comparison(&mut page),
                "pictures" => self.write_pictures(&mut page),
                "summary" => self.write_summary(&mut page),
                "plots" => self.write_plots(&mut page),
                "ranks" => self.write_ranks(&mut page),
                "parameters" => self.write_parameters(&mut page),
                "footer" => page.push_str(&escape(&self.footer)),
                other => debug_assert!(false, "the template asks for {other}"),
            }
            rest = after;
        }
        page.push_str(rest);
        page
    }

    fn write_heading(&self, page: &mut String) {
        let _ = write!(page, "<h1>{}</h1>", escape(&self.title));
        if !self.subtitle.is_empty() {
            let _ = write!(page, "<p class=\"subtitle\">{}</p>", escape(&self.subtitle));
        }
    }

    fn write_comparison(&self, page: &mut String) {
        let Some(Comparison { before, after }) = &self.comparison else { return };
        let (width, height) = size_of_png(&before.png).unwrap_or((1, 1));
        // Small pictures are shown larger, with their pixels; none is higher than a window.
        let shown = width.clamp(480, 960);
        let panels = places(&before.panels, width);
        let _ = write!(
            page,
            "<section><h2>Before and after</h2><figure class=\"wide\"><div class=\"compare\" \
             style=\"max-width:min({shown}px,calc(80vh*{width}/{height}));aspect-ratio:{width}/{height};\
             --left:{}\">",
            left_parts(&panels)
        );
        write_image(page, after, "after");
        write_image(page, before, "before");
        let (left, right) = (escape(&before.caption), escape(&after.caption));
        // Each part has a line of its own, so that both sides of it are the same slice.
        for Place { begin, length, caption } in &panels {
            let of = if caption.is_empty() { String::new() } else { format!(" at {caption}") };
            let _ = write!(
                page,
                "<div class=\"panel\" style=\"left:{begin:.4}%;width:{length:.4}%\">\
                 <span class=\"handle\" aria-hidden=\"true\"></span>\
                 <input type=\"range\" min=\"0\" max=\"100\" value=\"50\" step=\"0.1\" \
                 aria-label=\"How much of {left} is shown{of}\"></div>"
            );
        }
        let _ = write!(
            page,
            "<span class=\"tag left\" aria-hidden=\"true\">{left}</span>\
             <span class=\"tag right\" aria-hidden=\"true\">{right}</span></div>"
        );
        write_panels(page, &panels);
        write_scale(page, after.scale.as_ref());
        let line = if panels.len() == 1 { "the line" } else { "each line" };
        let _ = write!(
            page,
            "<figcaption>Drag, or use the arrow keys: {left} on the left of {line}, {right} on the right.\
             </figcaption></figure></section>"
        );
    }

    fn write_pictures(&self, page: &mut String) {
        if self.pictures.is_empty() {
            return;
        }
        page.push_str("<section><h2>Pictures</h2><div class=\"gallery\">");
        for picture in &self.pictures {
            page.push_str("<figure>");
            write_image(page, picture, "");
            write_scale(page, picture.scale.as_ref());
            let _ = write!(page, "<figcaption>{}</figcaption></figure>", escape(&picture.caption));
        }
        page.push_str("</div></section>");
    }

    fn write_summary(&self, page: &mut String) {
        write_table(page, "Result", &self.summary);
    }

    fn write_ranks(&self, page: &mut String) {
        write_table(page, "Ranks", &self.ranks);
    }

    fn write_plots(&self, page: &mut String) {
        let points = |value: fn(&Iteration) -> Option<f64>| -> Vec<(usize, f64)> {
            let point = |one: &Iteration| value(one).map(|value| (one.number, value));
            self.iterations.iter().filter_map(point).collect()
        };
        let terms = points(|one| one.data_term);
        let decibels = points(|one| one.psnr);
        let similarity = points(|one| one.ssim);
        let seconds: Vec<(usize, Vec<f64>)> =
            self.iterations.iter().map(|one| (one.number, one.seconds.clone())).collect();
        let lines = [
            ("Data term", chart::line("Data term by iteration", "", &terms, Scale::Logarithmic)),
            ("PSNR in dB", chart::line("PSNR by iteration", " dB", &decibels, Scale::Linear)),
            ("SSIM", chart::line("SSIM by iteration", "", &similarity, Scale::Linear)),
        ];
        let bars =
            chart::stacked("Seconds per iteration, by component", &self.components, &seconds);
        if bars.is_none() && lines.iter().all(|(_, plot)| plot.is_none()) {
            return;
        }
        page.push_str("<section><h2>Iterations</h2><div class=\"plots\">");
        for (name, plot) in lines {
            if let Some(plot) = plot {
                let _ = write!(page, "<figure class=\"plot\"><h3>{name}</h3>{plot}</figure>");
            }
        }
        if let Some(bars) = bars {
            let _ = write!(
                page,
                "<figure class=\"plot timing\"><h3>Seconds per iteration</h3><div>{bars}"
            );
            self.write_legend(page);
            page.push_str("</div></figure>");
        }
        page.push_str("</div></section>");
    }

    /// The colours of the components, with all of their seconds.
    fn write_legend(&self, page: &mut String) {
        let total = |component: usize| -> f64 {
            let seconds = self.iterations.iter().filter_map(|one| one.seconds.get(component));
            seconds.filter(|seconds| seconds.is_finite()).sum()
        };
        let all: f64 = (0..self.components.len()).map(total).sum();
        let digits = if all < 10.0 { 3 } else { 1 };
        let row = |name: &str, seconds: f64| {
            let share = 100.0 * seconds / all.max(f64::MIN_POSITIVE);
            format!(
                "<tr><th scope=\"row\">{name}</th><td>{seconds:.digits$} s</td><td>{share:.0}&#8201;%</td></tr>"
            )
        };
        page.push_str("<table class=\"legend\"><tbody>");
        // As the bars are stacked: the last on top.
        for (index, name) in self.components.iter().enumerate().rev() {
            let name = format!("<span class=\"key s{index}\"></span>{}", escape(name));
            page.push_str(&row(&name, total(index)));
        }
        page.push_str(&row("all iterations", all));
        page.push_str("</tbody></table>");
    }

    fn write_parameters(&self, page: &mut String) {
        write_list(page, "Parameters", &self.parameters);
        write_list(page, "Job file", &self.settings);
    }
}

/// Where a part of a picture is, in percent of its width.
struct Place {
    begin: f64,
    length: f64,
    /// As a page has it.
    caption: String,
}

/// The parts of a picture of this width; the whole, if it has none.
fn places(panels: &[Panel], width: u32) -> Vec<Place> {
    let mut begin = 0;
    let percent = |pixels: usize| 100.0 * pixels as f64 / f64::from(width);
    let mut places: Vec<Place> = Vec::new();
    for panel in panels {
        let caption = escape(&panel.caption);
        places.push(Place { begin: percent(begin), length: percent(panel.width), caption });
        begin += panel.width;
    }
    if begin != width as usize {
        return vec![Place { begin: 0.0, length: 100.0, caption: String::new() }];
    }
    places
}

/// The left of the line in each part, as a polygon: rectangles that hang together at the lower edge.
fn left_parts(places: &[Place]) -> String {
    let rectangle = |Place { begin, length, .. }: &Place| {
        let end = format!("calc({begin:.4}% + {length:.4}%*var(--at))");
        format!("{begin:.4}% 100%,{begin:.4}% 0,{end} 0,{end} 100%")
    };
    let corners: Vec<String> = places.iter().map(rectangle).collect();
    format!("polygon({})", corners.join(","))
}

/// What each part is, below it.
fn write_panels(page: &mut String, places: &[Place]) {
    if places.iter().all(|place| place.caption.is_empty()) {
        return;
    }
    page.push_str("<p class=\"panels\">Slices through the middle, from the left: ");
    let captions: Vec<&str> = places.iter().map(|place| &*place.caption).collect();
    let _ = write!(page, "{} (counted from 0).</p>", captions.join(", "));
}

/// A bar from black to white with the values of both.
fn write_scale(page: &mut String, scale: Option<&ValueScale>) {
    let Some(ValueScale { black, white, unit }) = scale else { return };
    let _ = write!(
        page,
        "<div class=\"scale\"><span>{}</span><span class=\"ramp\" role=\"img\" aria-label=\"from black to white\">\
         </span><span>{}</span><span class=\"unit\">{}</span></div>",
        figure(*black),
        figure(*white),
        escape(unit)
    );
}

/// A value with about four digits.
fn figure(value: f32) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if (1e-3..1e5).contains(&size) {
        let places = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
        let text = format!("{value:.places$}");
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').into()
        } else {
            text
        }
    } else {
        format!("{value:.2e}")
    }
}

/// A section with names and values.
fn write_list(page: &mut String, heading: &str, list: &[(String, String)]) {
    if list.is_empty() {
        return;
    }
    let _ = write!(page, "<section><h2>{heading}</h2><dl>");
    for (name, value) in list {
        let _ = write!(page, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    page.push_str("</dl></section>");
}

/// A section with a table.
fn write_table(page: &mut String, heading: &str, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    let _ = write!(page, "<section><h2>{heading}</h2><div class=\"scroll\"><table><thead><tr>");
    for column in &table.columns {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(column));
    }
    page.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        page.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let (open, close) =
                if index == 0 { ("<th scope=\"row\">", "</th>") } else { ("<td>", "</td>") };
            let _ = write!(page, "{open}{}{close}", escape(cell));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div></section>");
}

fn write_image(page: &mut String, picture: &Picture, class: &str) {
    page.push_str("<img");
    // The size is known before the picture is decoded, so that nothing moves.
    if let Some((width, height)) = size_of_png(&picture.png) {
        let pixels = if width < 400 { " pixels" } else { "" };
        let _ = write!(page, " width=\"{width}\" height=\"{height}\" class=\"{class}{pixels}\"");
    } else {
        let _ = write!(page, " class=\"{class}\"");
    }
    let _ = write!(page, " alt=\"{}\" src=\"data:image/png;base64,", escape(&picture.caption));
    let _ = write!(page, "{}", Base64Display::new(&picture.png, &STANDARD));
    page.push_str("\">");
}

/// Width and height, which are at the beginning of every PNG.
fn size_of_png(png: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(png.get(at..at + 4)?.try_into().ok()?));
    let is_png = png.starts_with(b"\x89PNG\r\n\x1a\n");
    (is_png && number(16)? > 0 && number(20)? > 0).then_some((number(16)?, number(20)?))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
