// A chart on the page: its card with title, choices, legend and notes, and the options of the plotting library.

const COLORS = 8;
const SYMBOLS = ["circle", "rect", "triangle", "diamond", "pin", "roundRect"];
const DASHED = [5, 4];

/** A card that draws whatever chart it is given; `choose(id, value)` is called when the reader chooses. */
class Card {
  constructor(id, choose) {
    this.id = id;
    this.choose = choose;
    this.hidden = new Set();
    this.title = element("h3");
    this.words = element("p", { class: "words" });
    this.choices = element("div", { class: "choices" });
    this.canvas = element("div", { class: "chart", role: "img" });
    this.legend = element("div", { class: "legend", role: "group", "aria-label": "Legend" });
    this.notes = element("div", { class: "notes" });
    this.element = element("figure", { class: "card", "data-chart": id },
      element("div", { class: "head" }, element("div", {}, this.title, this.words), this.choices),
      this.canvas, this.legend, this.notes);
    // Cards of a row are as high as the highest, whose charts fill them.
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  /** Shows a chart; nothing hides the card. */
  draw(chart) {
    this.chart = chart;
    this.element.hidden = chart === null;
    if (chart === null) { this.element.dataset.points = "0"; return; }
    this.title.textContent = chart.title;
    this.words.textContent = chart.words ?? "";
    this.canvas.setAttribute("aria-label", `${chart.title}. ${chart.words ?? ""} The values are in the table below.`);
    this.notes.replaceChildren(...(chart.notes ?? []).filter(Boolean).map((note) => element("p", {}, note)));
    this.drawChoices(chart);
    this.drawLegend(chart);
    this.plot ??= echarts.init(this.canvas);
    this.width = this.canvas.clientWidth;
    this.plot.setOption(optionsOf(chart, this.hidden, this.width), { notMerge: true });
    const shown = (chart.series ?? chart.bars).filter(({ name, line, isMark }) => !line && !isMark && !this.hidden.has(name));
    this.element.dataset.points = String(sum(shown.map(({ points, values }) => (points ?? known(values)).length)) ?? 0);
  }

  drawChoices({ choices = [], choice, asList }) {
    const choose = (value) => this.choose(this.id, value);
    this.choices.hidden = choices.length < 2;
    this.choices.replaceChildren(...(asList ? [
      element("select", { "aria-label": "Show", change: (event) => choose(event.target.value) },
        choices.map(([value, name]) => element("option", { value, selected: value === choice }, name))),
    ] : choices.map(([value, name]) => element("button", {
      type: "button", "aria-pressed": String(value === choice), click: () => choose(value),
    }, name))));
  }

  drawLegend({ series, bars }) {
    const entries = new Map();
    for (const one of series ?? bars) {
      if (!entries.has(one.name) || entries.get(one.name).isPredicted) entries.set(one.name, one);
    }
    this.legend.hidden = entries.size < 2;
    this.legend.replaceChildren(...[...entries.values()].map((one) => {
      const kind = one.line === "ideal" ? "ideal" : bars ? "bar" : one.isPredicted ? "predicted" : "";
      return element("button", {
        type: "button", "aria-pressed": String(!this.hidden.has(one.name)), title: "Show or hide",
        click: () => this.toggle(one.name),
      }, element("span", { class: `key ${kind}`, style: `--key: var(${one.color ?? "--soft"})` }), one.name);
    }));
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.draw(this.chart);
  }

  resize() {
    if (!this.plot || !this.chart) return;
    this.plot.resize();
    if (this.width !== this.canvas.clientWidth) this.draw(this.chart);
  }
}

/** A variable of the style sheet, which is another colour in the dark. */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsOf(chart, hidden, width) {
  const isNarrow = width < 480;
  const base = {
    animation: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    animationDuration: 250, animationDurationUpdate: 250,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: color("--soft") },
    grid: { left: 8, right: 24, top: 16, bottom: chart.x.name ? 30 : 8, containLabel: true },
    tooltip: tooltipOf(chart),
  };
  const isShown = ({ name }) => !hidden.has(name);
  return chart.bars
    ? { ...base, ...barOptions(chart, chart.bars.filter(isShown), isNarrow) }
    : { ...base, ...lineOptions(chart, chart.series.filter(isShown), isNarrow) };
}

function axisOf({ name, log, min, atLeast, isTight, label, categories }, values, isNarrow) {
  const range = log ? logarithmicRange(values, log, isNarrow ? 4 : 6) : {};
  return {
    type: categories ? "category" : log ? "log" : "value", ...range,
    ...(log || categories ? {} : { min: min ?? undefined, scale: min === undefined }),
    ...(isTight ? { min: "dataMin", max: "dataMax" } : {}),
    ...(atLeast ? { max: ({ max }) => Math.max(atLeast, Math.ceil(max * 5 - 0.1) / 5), interval: 0.2 } : {}),
    data: categories, name, nameLocation: "middle", nameGap: 30,
    nameTextStyle: { color: color("--soft"), fontSize: 12 },
    axisLine: { show: Boolean(name), onZero: false, lineStyle: { color: color("--axis") } },
    axisTick: { show: false },
    splitLine: { show: !categories, lineStyle: { color: color("--rule") } },
    axisLabel: {
      color: color("--soft"), fontSize: 12, hideOverlap: true,
      formatter: label && ((value) => label(value).replace(/\.0+(?=\D|$)/, "")),
      width: categories && isNarrow ? 110 : undefined, overflow: categories && isNarrow ? "break" : undefined,
      lineHeight: 15,
    },
    splitNumber: isNarrow ? 4 : 5,
  };
}

/** Whole powers around the values, and a step in powers that makes few lines of them. */
function logarithmicRange(values, base, lines) {
  const power = (value) => Math.log(value) / Math.log(base);
  const first = Math.floor(power(smallest(values)) + 0.02);
  const last = Math.max(first + 1, Math.ceil(power(largest(values)) - 0.05));
  const span = last - first;
  let interval = Math.ceil(span / lines);
  // A step that ends at the last power, if one is near.
  for (let longer = interval; longer <= 2 * interval; longer++) {
    if (span % longer === 0) { interval = longer; break; }
  }
  return { logBase: base, min: base ** first, max: base ** last, interval };
}

function lineOptions(chart, series, isNarrow) {
  const isHeavy = series.reduce((count, { points }) => count + points.length, 0) > 400;
  // The axes are those of all series, so that hiding one does not move the others.
  const along = (axis) => chart.series.flatMap(({ points }) => points.map((point) => point[axis]));
  return {
    xAxis: axisOf({ ...chart.x, label: chart.x.label ?? format.count }, along(0), isNarrow),
    yAxis: axisOf(chart.y, along(1), isNarrow),
    series: series.flatMap((one) => [...whiskerSeries(one), lineSeries(one, chart.series.indexOf(one), isHeavy)]),
  };
}

function lineSeries(one, index, isHeavy) {
  if (one.line === "ideal") {
    return {
      id: "ideal", name: one.name, type: "line", data: one.points, symbol: "none", silent: true, z: 1,
      lineStyle: { color: color("--soft"), width: 1.5, type: [2, 4] }, tooltip: { show: false },
    };
  }
  const shade = color(one.color);
  if (one.isMark) {
    return {
      id: String(index), name: one.name, type: "scatter", data: one.points, z: 4, clip: false, symbol: "circle", symbolSize: 20,
      itemStyle: { color: "transparent", borderColor: shade, borderWidth: 2 },
    };
  }
  return {
    id: String(index), name: one.name, type: "line", data: one.points, z: one.isPredicted ? 2 : 3, clip: false,
    symbol: one.symbol, symbolSize: isHeavy ? 6 : one.isPredicted ? 8 : 9, showAllSymbol: true,
    lineStyle: { color: shade, width: 2, type: one.isPredicted ? DASHED : "solid" },
    itemStyle: one.isPredicted
      ? { color: color("--card"), borderColor: shade, borderWidth: 1.75 }
      : { color: shade, borderColor: color("--card"), borderWidth: 1 },
    emphasis: { scale: 1.4, lineStyle: { width: 3 } },
  };
}

/** Vertical strokes as one line with gaps. */
function whiskerSeries({ name, color: shade, whiskers = [] }) {
  return whiskers.length === 0 ? [] : [{
    name, type: "line", symbol: "none", silent: true, z: 2, tooltip: { show: false }, animation: false,
    data: whiskers.flatMap(([x, low, high]) => [[x, low], [x, high], [x, null]]),
    lineStyle: { color: color(shade), width: 6, opacity: 0.3, cap: "butt" },
  }];
}

function barOptions(chart, bars, isNarrow) {
  const categories = { ...axisOf(chart.x, [], isNarrow), inverse: Boolean(chart.isHorizontal) };
  const values = axisOf({ ...chart.y, min: 0 }, [], isNarrow);
  return {
    xAxis: chart.isHorizontal ? values : categories,
    yAxis: chart.isHorizontal ? categories : values,
    series: bars.map((one) => ({
      id: one.name, name: one.name, type: "bar", stack: one.stack, barMaxWidth: chart.isHorizontal ? 22 : 34,
      barGap: "12%", barCategoryGap: "28%",
      data: one.values.map((value, index) => ({
        value, itemStyle: chart.pale?.[index] ? { opacity: 0.42 } : undefined,
      })),
      itemStyle: { color: color(one.color) },
      emphasis: { focus: "none" },
    })),
  };
}

/** Lines say what is at a point, bars what is at a category. */
function tooltipOf(chart) {
  const common = {
    confine: true, backgroundColor: color("--card"), borderColor: color("--rule"), padding: 0,
    textStyle: { color: color("--ink") }, extraCssText: "border-radius:8px;box-shadow:0 4px 18px rgb(0 0 0 / 18%)",
  };
  if (chart.bars) {
    return {
      ...common, trigger: "axis", axisPointer: { type: "shadow", shadowStyle: { color: color("--shade") } },
      formatter: ([first]) => noteOf(chart.hover(first.dataIndex)),
    };
  }
  return {
    ...common, trigger: "item",
    formatter: ({ seriesId, dataIndex }) => {
      const hover = chart.series[Number(seriesId)]?.hover?.[dataIndex];
      return hover ? noteOf(hover()) : "";
    },
  };
}

function noteOf({ title, isPredicted, pairs }) {
  return element("div", { class: "note" },
    element("strong", {}, title), isPredicted ? element("span", { class: "badge" }, "predicted") : null,
    element("dl", {}, pairs.filter(Boolean).map(([name, value, key]) => element("div", {},
      element("dt", {}, key ? element("span", { class: "key bar", style: `--key: var(${key})` }) : null, name),
      element("dd", {}, value)))));
}
