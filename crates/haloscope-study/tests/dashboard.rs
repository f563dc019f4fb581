//! The dashboard in a real browser: what it draws, what it computes, and what it must not do.
//!
//! Without Chromium these tests say that they are skipped. `HALOSCOPE_SCREENSHOTS=DIR` keeps pictures to look at.

mod browser;
mod sample;

use std::path::{Path, PathBuf};

use browser::Browser;
use haloscope_study::dashboard::{Dashboard, Run, Table};
use serde_json::{Value, json};
use tempfile::TempDir;

/// All charts that a page with all studies has.
const CHARTS: [&str; 22] = [
    "speedup",
    "efficiency",
    "seconds",
    "weak",
    "contention",
    "components",
    "time",
    "load",
    "traffic",
    "steps",
    "counts",
    "balance",
    "memory",
    "width-time",
    "throughput",
    "batch-memory",
    "overlap",
    "overlap-quality",
    "compare",
    "compare-memory",
    "convergence",
    "psnr-time",
];

struct Page {
    browser: Browser,
    folder: TempDir,
}

impl Page {
    /// A page of a table in a browser; nothing, visibly, if there is no browser.
    fn open(csv: &str, width: u32, is_dark: bool) -> Option<Self> {
        let Some(mut browser) = Browser::start() else {
            eprintln!("skipped: the dashboard in a browser, which needs chromium");
            return None;
        };
        let table = Table::parse(Path::new("rows.csv"), csv.as_bytes()).expect("the sample");
        let provenance =
            json!({ "version": "0.1.0", "machine": { "cores": 2 }, "command": ["bench", "<b>"] });
        let run = Run { name: "sample <i>".into(), table, provenance: Some(provenance) };
        let page = Dashboard::new("Sample & <test>", vec![run]).expect("a page").to_html();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("page.html");
        std::fs::write(&file, page).expect("a file");
        browser.set_window(width, 900);
        browser.set_dark(is_dark);
        browser.open(&file);
        browser.wait_until("document.querySelectorAll('tbody tr').length > 0");
        Some(Self { browser, folder })
    }

    fn ask(&mut self, expression: &str) -> Value {
        self.browser.evaluate(expression)
    }

    fn number(&mut self, expression: &str) -> f64 {
        self.ask(expression).as_f64().unwrap_or_else(|| panic!("{expression} is no number"))
    }

    /// The names of the charts that are there, in the page's order.
    fn charts(&mut self) -> Vec<String> {
        let names =
            "[...document.querySelectorAll('[data-chart]')].filter((card) => card.offsetParent)
            .map((card) => card.dataset.chart)";
        serde_json::from_value(self.ask(names)).expect("names")
    }

    fn points(&mut self, chart: &str) -> f64 {
        self.number(&format!(
            "Number(document.querySelector('[data-chart={chart}]').dataset.points)"
        ))
    }

    /// How many colours a chart's pixels have: one if nothing is drawn.
    fn colors(&mut self, chart: &str) -> f64 {
        self.number(&format!(
            "(() => {{
                const canvas = document.querySelector('[data-chart={chart}] canvas');
                const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                return new Set(new Uint32Array(image.data.buffer)).size;
            }})()"
        ))
    }

    /// Presses a button by its words, within an element.
    fn press(&mut self, within: &str, words: &str) {
        let found = self.ask(&format!(
            "(() => {{
                const all = [...document.querySelectorAll('{within} button')];
                const button = all.find((one) => one.textContent === {});
                button?.click();
                return Boolean(button);
            }})()",
            json!(words)
        ));
        assert_eq!(found, json!(true), "no button {words} in {within}");
    }

    fn table_rows(&mut self) -> f64 {
        self.number("document.querySelectorAll('tbody tr').length")
    }

    fn keep_screenshot(&mut self, name: &str) {
        if let Some(folder) = std::env::var_os("HALOSCOPE_SCREENSHOTS") {
            let picture = self.browser.screenshot();
            std::fs::write(PathBuf::from(folder).join(name), picture).expect("a picture");
        }
    }

    /// Nothing was complained about, and nothing but the file was asked for.
    fn assert_quiet(&mut self) {
        let record = self.browser.record();
        assert_eq!(record.complaints, Vec::<String>::new());
        let own = format!("file://{}", self.folder.path().join("page.html").display());
        let strange: Vec<&String> = record.requests.iter().filter(|url| **url != own).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }
}

#[test]
fn all_charts_are_drawn_without_complaints_or_requests() {
    let Some(mut page) = Page::open(&sample::everything(), 1280, false) else { return };
    assert_eq!(page.charts(), CHARTS);
    for chart in CHARTS {
        assert!(page.points(chart) > 1.0, "{chart} has points");
        assert!(page.colors(chart) > 10.0, "{chart} is drawn");
    }
    page.keep_screenshot("light.png");
    page.assert_quiet();
}

#[test]
fn text_of_a_table_is_shown_as_it_is() {
    let Some(mut page) = Page::open(&sample::memory_only(), 1280, false) else { return };
    assert_eq!(page.ask("document.querySelector('h1').textContent"), "Sample & <test>");
    assert_eq!(page.number("document.querySelectorAll('i, b').length"), 0.0);
    let footer = page.ask("document.getElementById('footer').textContent");
    let footer = footer.as_str().expect("text");
    assert!(footer.contains("sample <i>") && footer.contains("bench, <b>"), "{footer}");
}

#[test]
fn studies_that_are_absent_have_no_charts() {
    let Some(mut page) = Page::open(&sample::memory_only(), 1280, false) else { return };
    assert_eq!(page.charts(), ["memory", "width-time"]);
    page.assert_quiet();
}

#[test]
fn a_filter_changes_what_is_shown_and_can_be_taken_back() {
    let Some(mut page) = Page::open(&sample::everything(), 1280, false) else { return };
    let (points, rows) = (page.points("speedup"), page.table_rows());
    page.press("[data-filter=backend]", "threads");
    let fewer = page.points("speedup");
    assert!(fewer > 0.0 && fewer < points, "{fewer} of {points} points");
    assert!(page.table_rows() < rows);
    page.press("[data-filter=backend]", "all");
    assert_eq!((page.points("speedup"), page.table_rows()), (points, rows));

    page.press("[data-filter=predicted]", "hidden");
    assert!(page.points("speedup") < points);
    assert_eq!(page.number("document.querySelectorAll('tr.predicted').length"), 0.0);
    page.press("[data-filter=predicted]", "shown");

    page.press("[data-filter=study]", "batch");
    assert_eq!(page.charts(), ["throughput", "batch-memory"]);
    page.assert_quiet();
}

#[test]
fn the_legend_hides_a_curve_and_the_choice_another_efficiency() {
    let Some(mut page) = Page::open(&sample::everything(), 1280, false) else { return };
    let points = page.points("speedup");
    let first =
        page.ask("document.querySelectorAll('[data-chart=speedup] .legend button')[1].textContent");
    page.press("[data-chart=speedup] .legend", first.as_str().expect("a name"));
    assert!(page.points("speedup") < points);
    let words = "document.querySelector('[data-chart=efficiency] .words').textContent";
    let before = page.ask(words);
    page.press("[data-chart=efficiency] .choices", "load balance");
    assert_ne!(page.ask(words), before);
    page.assert_quiet();
}

#[test]
fn a_point_says_its_values_when_the_mouse_is_over_it() {
    let csv = "study,predicted,problem,height,width,ranks,rank,repetition,total_seconds\n\
               scaling,false,x,64,64,1,0,0,3.0\nscaling,false,x,64,64,2,0,0,2.0\n";
    let Some(mut page) = Page::open(csv, 1280, false) else { return };
    let place = page.ask(
        "(() => {
            const canvas = document.querySelector('[data-chart=seconds] .chart');
            canvas.scrollIntoView();
            const [x, y] = echarts.getInstanceByDom(canvas).convertToPixel('grid', [2, 2.0]);
            const box = canvas.getBoundingClientRect();
            return [box.x + x, box.y + y];
        })()",
    );
    let at = |index: usize| place[index].as_f64().expect("a place");
    page.browser.move_mouse(at(0) - 3.0, at(1));
    page.browser.move_mouse(at(0), at(1));
    page.browser.wait_until("Boolean(document.querySelector('[data-chart=seconds] .note'))");
    let note = page.ask("document.querySelector('[data-chart=seconds] .note').textContent");
    let note = note.as_str().expect("text");
    assert!(note.contains("2.00 s") && note.contains("1.50×") && note.contains("75 %"), "{note}");
}

#[test]
fn speedups_are_of_medians_over_all_iterations_of_the_slowest_rank() {
    // One rank: 3, 5, 6 and 20 s. Two: the slower rank takes 2.75 s. The prediction for two is 3.025 s.
    let csv = "study,predicted,ranks,rank,repetition,iteration,total_seconds,transfer_seconds,waiting_seconds\n\
               scaling,false,1,0,0,1,3,0,0\nscaling,false,1,0,0,2,5,0,0\n\
               scaling,false,1,0,1,1,6,0,0\nscaling,false,1,0,2,1,20,0,0\n\
               scaling,false,2,0,0,1,2.75,0.5,0\nscaling,false,2,1,0,1,2.5,0.5,1\n\
               scaling,false,2,0,0,2,2.75,0.5,1\nscaling,false,2,1,0,2,2.75,0.5,0\n\
               scaling,true,2,0,0,1,3.025,,\n";
    let Some(mut page) = Page::open(csv, 1280, false) else { return };
    let points = page.ask(
        "curvesOf(all)[0].measured.map(({ seconds, low, high, speedup, efficiency, balance, communication }) =>
            ({ seconds, low, high, speedup, efficiency, balance, communication }))",
    );
    let two = &points[1];
    assert_eq!(points[0]["seconds"], 5.5);
    // The medians of the fastest and of the slowest repetition.
    assert_eq!((&points[0]["low"], &points[0]["high"]), (&json!(4), &json!(20)));
    assert_eq!(
        (&two["seconds"], &two["speedup"], &two["efficiency"]),
        (&json!(2.75), &json!(2), &json!(1))
    );
    // The ranks compute for 2.25 + 1.25 s and 1 + 2.25 s, while 5.5 s pass.
    let is_near = |value: &Value, expected: f64| {
        // Numbers of JSON may differ in the last digit.
        value.as_f64().is_some_and(|value| (value - expected).abs() < 1e-12)
    };
    assert!(is_near(&two["balance"], 3.375 / 3.5), "{two}");
    assert!(is_near(&two["communication"], 3.5 / 5.5), "{two}");
    assert!((page.number("predictionError(curvesOf(all))") - 0.1).abs() < 1e-9);
    let table = page.ask("document.querySelector('table').textContent");
    let table = table.as_str().expect("text");
    assert!(table.contains("speedup") && table.contains("2.00×"), "{table}");
    let notes = page.ask("document.querySelector('[data-chart=speedup] .notes').textContent");
    assert!(
        notes.as_str().expect("text").contains("predicted by the model, not measured"),
        "{notes}"
    );
}

#[test]
fn predictions_have_bands_and_problems_side_by_side_are_ratios() {
    let header = "study,predicted,problem,mode,ranks,rank,repetition,iteration,total_seconds,data_seconds,prior_seconds,\
                  low_seconds,high_seconds\n";
    let rows = "scaling,false,deblur,strong,1,0,0,1,10,4,5,,\n\
                scaling,false,deblur,contention,2,0,0,1,11,5,5,,\nscaling,false,deblur,contention,2,1,0,1,12,6,5,,\n\
                scaling,true,deblur,strong,4,0,0,,3,1,2,2.5,4\n";
    let Some(mut page) = Page::open(&format!("{header}{rows}"), 1280, false) else { return };
    // Problems side by side are no points of a curve.
    assert_eq!(page.number("curvesOf(all)[0].measured.length"), 1.0);
    let bars = page.ask("contentionChart(look()).bars.map(({ values }) => values[0])");
    assert_eq!(bars, json!([1.5, 1, 1.2]));
    let band =
        page.ask("secondsChart(look()).series.find(({ isPredicted }) => isPredicted).whiskers");
    assert_eq!(band, json!([[4, 2.5, 4]]));
    page.assert_quiet();
}

#[test]
fn counts_that_differ_from_the_plan_are_said() {
    let header = "study,predicted,problem,ranks,rank,repetition,iteration,total_seconds,bytes_sent,predicted_bytes_sent,pixels_computed\n";
    let rows = "counts,false,deblur,2,0,0,2,0,100,100,30\ncounts,false,deblur,2,1,0,2,0,90,90,10\n";
    let words = "document.querySelector('[data-chart=counts] .notes').textContent";
    let Some(mut page) = Page::open(&format!("{header}{rows}"), 1280, false) else { return };
    assert!(page.ask(words).as_str().expect("text").contains("exactly what was foretold"));
    let balance = page.ask("balanceChart(look()).series[0].points");
    assert_eq!(balance, json!([[2, 20.0 / 30.0]]));
    assert_eq!(page.charts(), ["counts", "balance"], "nothing of it is timed");
    let wrong = rows.replace(",90,90,", ",91,90,");
    let Some(mut page) = Page::open(&format!("{header}{wrong}"), 1280, false) else { return };
    assert!(
        page.ask(words).as_str().expect("text").contains("1 configuration sent something else")
    );
    page.assert_quiet();
}

#[test]
fn systems_are_compared_where_they_do_the_same_work() {
    let header = "study,predicted,system,problem,patch,operators,ranks,threads,rank,repetition,iteration,total_seconds,prior_seconds\n";
    let mut csv = header.to_owned();
    for (system, seconds) in [("haloscope", "2,1"), ("deepinv", "6,4")] {
        for case in [
            "deblur,,8,1,2",
            "deblur,,8,1,1",
            "deblur,,4,1,2",
            "deblur,,8,2,1",
            "tomography-3d,,8,1,2",
        ] {
            csv += &["compare,false", system, case, "0,0,1", seconds].join(",");
            csv += "\n";
        }
    }
    let Some(mut page) = Page::open(&csv, 1280, false) else { return };
    let expected = [
        "deblur · 8 operators · 1 rank · 2 threads a rank",
        "deblur · 8 operators · 1 rank · 1 thread a rank",
        "deblur · 4 operators · 1 rank · 2 threads a rank",
        "deblur · 8 operators · 2 ranks · 1 thread a rank · whole on every process but haloscope's",
        "tomography-3d · 8 operators · 1 rank · 2 threads a rank · denoiser only",
    ];
    assert_eq!(page.ask("compareChart(look()).x.categories"), json!(expected));
    let bars = page.ask("compareChart(look()).bars.map(({ values }) => values)");
    assert_eq!(bars, json!([[2, 2, 2, 2, 1], [6, 6, 6, 6, 4]]));
    let mut said =
        |index: usize| page.ask(&format!("compareChart(look()).hover({index}).pairs[1][1]"));
    assert_eq!([said(0), said(3), said(4)], ["6.00 s, 3.00×", "6.00 s", "4.00 s, 4.00×"]);
    assert_eq!(page.number("compareMemoryChart(look()) === null ? 1 : 0"), 1.0);
    page.assert_quiet();
}

#[test]
fn time_goes_on_with_every_iteration() {
    let csv = "study,predicted,system,ranks,rank,repetition,iteration,total_seconds,psnr_db\n\
               compare,false,a,1,0,0,1,2,20\ncompare,false,a,1,0,0,2,3,25\ncompare,false,a,1,0,1,1,4,20\ncompare,false,a,1,0,1,2,5,25\n";
    let Some(mut page) = Page::open(csv, 1280, false) else { return };
    // The middle of 2 and 4 s, then that of 3 and 5 s.
    assert_eq!(page.ask("psnrTimeChart(look()).series[0].points"), json!([[3, 20], [7, 25]]));
    page.assert_quiet();
}

#[test]
fn images_in_one_piece_and_what_ranks_share_are_curves_of_their_own() {
    // Tables of earlier versions neither have the last column nor know the problem by its name.
    let old = "study,predicted,problem,backend,patch,ranks,rank,repetition,total_seconds\n\
               scaling,false,highres-color,threads,64,1,0,0,8\nscaling,false,highres-color,threads,64,2,0,0,5\n";
    let new = old.replace("total_seconds", "total_seconds,distribute").replace("8\n", "8,both\n");
    let new = new.replace(",5\n", ",5,both\n").replace("highres-color", "deblur")
        + "scaling,false,deblur,solo,,1,0,0,6,both\n\
           scaling,false,deblur,threads,64,1,0,0,8,physics\nscaling,false,deblur,threads,64,2,0,0,7,physics\n";
    let labels = "curvesOf(all).map(names)";
    let Some(mut page) = Page::open(old, 1280, false) else { return };
    assert_eq!(page.ask(labels), json!(["deblur"]));
    let Some(mut page) = Page::open(&new, 1280, false) else { return };
    let expected = [
        "deblur · threads · patch 64",
        "deblur · threads · patch 64 · only physics distributed",
        "deblur · solo · untiled",
    ];
    assert_eq!(page.ask(labels), json!(expected));
    // Each is compared with its own.
    let speedups = "curvesOf(all).map(({ measured }) => measured.map(({ speedup }) => speedup))";
    assert_eq!(page.ask(speedups), json!([[1, 1.6], [1, 8.0 / 7.0], [1]]));
    let rows = page.table_rows();
    page.press("[data-filter=distribute]", "physics");
    assert_eq!((page.table_rows(), rows), (2.0, 5.0));
    page.press("[data-filter=distribute]", "all");
    page.press("[data-filter=tiling]", "untiled");
    assert_eq!(page.table_rows(), 1.0);
    page.assert_quiet();
}

#[test]
fn random_weights_are_said_wherever_their_quality_is_shown() {
    let csv = "study,predicted,model,ranks,rank,repetition,iteration,total_seconds,psnr_db\n\
               scaling,false,drunet,1,0,0,1,1,3.9\nscaling,false,drunet,1,0,0,2,1,4.1\n\
               scaling,false,net.pth,1,0,0,1,1,28\nscaling,false,net.pth,1,0,0,2,1,30\n";
    let Some(mut page) = Page::open(csv, 1280, false) else { return };
    let words = |page: &mut Page, place: &str| {
        let text = page.ask(&format!("document.querySelector('{place}').textContent"));
        text.as_str().expect("text").to_owned()
    };
    let notes = words(&mut page, "[data-chart=convergence] .notes");
    assert!(notes.contains("Random weights: drunet."), "{notes}");
    assert!(words(&mut page, "#subtitle").contains("drunet: random weights"));
    let cells =
        page.ask("[...table.csv('table').trim().split('\\n')].map((line) => line.split(','))");
    let column = cells[0].as_array().expect("names").iter().position(|name| name == "weights");
    let column = column.expect("the weights");
    let mut found = [&cells[1][column], &cells[2][column]];
    found.sort_by_key(|cell| cell.as_str());
    assert_eq!(found, ["file", "random"]);
    page.assert_quiet();
    let trained = csv.replace("drunet", "other.pth");
    let Some(mut page) = Page::open(&trained, 1280, false) else { return };
    assert!(!words(&mut page, "#subtitle").contains("random"));
}

#[test]
fn the_downloads_are_the_table_and_its_rows() {
    let csv = sample::everything();
    let Some(mut page) = Page::open(&csv, 1280, false) else { return };
    let table = |text: &str| Table::parse(Path::new("rows.csv"), text.as_bytes()).expect("a table");
    let rows = page.ask("table.csv('rows')");
    let rows = table(rows.as_str().expect("text"));
    let original = table(&csv);
    assert_eq!(rows.rows, original.rows);
    for (name, values) in &original.columns {
        // The page groups rows by configuration, so the order is another.
        let sorted = |values| {
            let mut cells: Vec<String> = cells_of(values);
            cells.sort();
            cells
        };
        assert_eq!(sorted(values), sorted(rows.column(name).expect(name)), "{name}");
    }
    let shown = page.ask("table.csv('table')");
    let lines = shown.as_str().expect("text").lines().count();
    assert_eq!(lines as f64, page.number("all.length + 1"));
    page.ask("document.getElementById('download-table').click()");
    page.assert_quiet();
}

fn cells_of(values: &haloscope_study::dashboard::Values) -> Vec<String> {
    use haloscope_study::dashboard::Values;
    match values {
        Values::Text(cells) => cells.iter().map(|cell| format!("{cell:?}")).collect(),
        Values::Flags(cells) => cells.iter().map(|cell| format!("{cell:?}")).collect(),
        Values::Counts(cells) => cells.iter().map(|cell| format!("{cell:?}")).collect(),
        Values::Numbers(cells) => cells.iter().map(|cell| format!("{cell:?}")).collect(),
    }
}

#[test]
fn dark_is_dark_and_is_drawn_as_well() {
    let Some(mut page) = Page::open(&sample::everything(), 1280, true) else { return };
    let dark = page.ask("getComputedStyle(document.body).backgroundColor");
    assert_eq!(dark, "rgb(19, 20, 22)");
    assert!(CHARTS.iter().all(|chart| page.colors(chart) > 10.0));
    page.keep_screenshot("dark.png");
    page.browser.set_dark(false);
    assert_ne!(page.ask("getComputedStyle(document.body).backgroundColor"), dark);
    page.assert_quiet();
}

#[test]
fn a_phone_shows_everything_without_scrolling_sideways() {
    let Some(mut page) = Page::open(&sample::everything(), 375, false) else { return };
    assert_eq!(page.charts(), CHARTS);
    for is_open in [false, true] {
        page.ask(&format!("document.getElementById('filters').open = {is_open}"));
        let width = page.number("document.documentElement.scrollWidth");
        assert_eq!(width, page.number("window.innerWidth"), "with filters: {is_open}");
        assert_eq!(width, 375.0);
    }
    page.ask("document.getElementById('filters').open = false");
    page.keep_screenshot("phone.png");
    page.assert_quiet();
}
