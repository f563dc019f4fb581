// The page: reads the rows, makes the cards, and draws again whenever the reader changes something.

const data = JSON.parse(document.getElementById("data").textContent);
const rows = unpack(data);
const all = configurationsOf(rows);
const random = new Set(data.random);

// Colours and labels are those of all curves, so that filters change neither.
const names = labeller(curvesOf(all), ["problem", "size"],
  ["mode", "run", "system", "backend", "model", "patch", "overlap", "batch", "distribute", "layout", "device", "tiling", "operators",
    "threads"]);
const knownCurves = [...new Set(curvesOf(all).map(names))];

const choices = new Map();
const main = document.getElementById("main");
const filters = new Filters(all, redraw);
const table = new Table(look().configurations, data.order, random);
const cards = new Map();
const sections = SECTIONS.map((section) => makeSection(section));

function makeSection({ title, charts, chooses }) {
  const grid = element("div", { class: "grid" });
  const chooser = element("select", {
    id: "curve", "aria-label": "Curve", change: (event) => choose("curve", event.target.value),
  });
  const made = element("section", {},
    element("div", { class: "section-head" }, element("h2", {}, title), chooses ? chooser : null), grid);
  for (const chart of charts) {
    const card = new Card(chart.name, choose);
    card.make = chart;
    cards.set(chart, card);
    grid.append(card.element);
  }
  main.append(made);
  return { element: made, charts, chooser: chooses ? chooser : null };
}

function choose(id, value) {
  choices.set(id, value);
  redraw();
}

/** What the filters leave, and what the reader looks at. */
function look() {
  const configurations = all.filter((one) => filters.accept(one));
  const curves = curvesOf(configurations).map((curve) => {
    const label = names(curve);
    const index = knownCurves.indexOf(label);
    return { ...curve, label, color: `--s${index % COLORS}`, symbol: SYMBOLS[index % SYMBOLS.length] };
  });
  // The table shows speedups beside the other figures of a configuration.
  const points = new Map(curves.flatMap(({ measured, predicted }) => [...measured, ...predicted])
    .map((point) => [point.rows, point]));
  const interest = ({ measured, predicted }) => measured.length * 1e4 + predicted.length;
  const wanted = curves.find(({ label }) => label === choices.get("curve"));
  const curve = wanted ?? curves.reduce((a, b) => a && interest(a) >= interest(b) ? a : b, null);
  return {
    all, curves, curve, choices, random,
    configurations: configurations.map((one) => ({ ...one, point: points.get(one.rows) ?? null })),
  };
}

function redraw() {
  const view = look();
  for (const section of sections) {
    const drawn = section.charts.map((chart) => ({ card: cards.get(chart), chart: chart(view) }));
    section.element.hidden = drawn.every(({ chart }) => chart === null);
    if (section.chooser) drawChooser(section.chooser, view);
    for (const { card, chart } of drawn) {
      if (chart) { card.id = chart.id; card.element.dataset.chart = chart.id; }
      card.draw(chart);
    }
  }
  table.draw(view.configurations);
}

function drawChooser(chooser, { curves, curve }) {
  chooser.hidden = curves.length < 2;
  chooser.replaceChildren(...curves.map(({ label }) => element("option", { value: label, selected: label === curve?.label }, label)));
}

/** What each problem says first: its efficiency on the most ranks that were measured, and on about 64 predicted. */
function drawTiles() {
  const tiles = [];
  const better = (rank) => (a, b) => {
    const order = a ? rank(a.point) - rank(b.point) || a.point.efficiency - b.point.efficiency : -1;
    return order >= 0 ? a : b;
  };
  for (const curves of groupBy(curvesOf(all).filter(({ mode }) => mode !== "weak"), ({ problem }) => problem).values()) {
    const points = (kind) => curves.flatMap((curve) => curve[kind].map((point) => ({ curve, point })))
      .filter(({ point }) => point.ranks > 1);
    const measured = points("measured").reduce(better(({ ranks }) => ranks), null);
    // Predictions of systems that were not measured are in the charts only.
    const predicted = points("predicted").filter(({ curve }) => !measured || curve.system === measured.curve.system);
    tiles.push(measured, predicted.reduce(better(({ ranks }) => -Math.abs(Math.log2(ranks / 64))), null));
  }
  document.getElementById("tiles").replaceChildren(...tiles.filter(Boolean).slice(0, 8).map(({ curve, point }) =>
    element("div", { class: point.predicted ? "tile predicted" : "tile" },
      element("div", { class: "tile-value" }, format.percent(point.efficiency),
        point.predicted ? element("span", { class: "badge" }, "predicted") : null),
      element("div", { class: "tile-name" }, `efficiency on ${plural(point.ranks, "rank")}`),
      element("div", { class: "tile-detail" }, names(curve)))));
}

function drawHeader() {
  const studies = [...new Set(all.map(({ study }) => study))];
  const measured = rows.filter(({ predicted }) => !predicted).length;
  const predicted = rows.length - measured;
  document.getElementById("subtitle").textContent = `${plural(data.runs.length, "run")} of the ${studies.length === 1 ? "study" : "studies"} ${studies.join(", ")}: `
    + `${plural(measured, "measured row")}${predicted ? ` and ${plural(predicted, "predicted row")}` : ""}.`
    + (random.size ? ` ${[...random].join(", ")}: random weights, so PSNR is not a measure of quality.` : "");
}

/** Where the numbers come from, as the studies say. */
function drawProvenance() {
  const flatten = (value, path) => value !== null && typeof value === "object"
    ? Array.isArray(value) && value.every((one) => typeof one !== "object") ? [[path, value.join(", ")]]
      : Object.entries(value).flatMap(([key, inner]) => flatten(inner, path ? `${path}.${key}` : key))
    : [[path, String(value)]];
  const described = data.runs.filter(({ provenance }) => provenance !== null);
  document.getElementById("footer").replaceChildren(
    ...described.map(({ name, provenance }) => element("details", { class: "card provenance" },
      element("summary", {}, `Where the numbers of ${name} come from`),
      element("dl", {}, flatten(provenance, "").map(([key, value]) =>
        element("div", {}, element("dt", {}, key.replaceAll("_", " ")), element("dd", {}, value)))))),
    element("p", {}, "Made by haloscope. Charts by Apache ECharts, Apache License 2.0."));
}

filters.draw(document.getElementById("filters-body"), document.getElementById("filters-state"));
document.getElementById("filters").hidden = filters.groups.length === 0 && !filters.hasPredictions;
// A phone shows the charts first.
if (matchMedia("(max-width: 640px)").matches) document.getElementById("filters").open = false;
main.append(table.element);
drawHeader();
drawTiles();
drawProvenance();
redraw();

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
