// What each chart shows: functions from a view of the data to a chart's title, series and words.
//
// A view has the configurations and curves that the filters leave, and what the reader chose to look at. A chart
// that has nothing to show is null, and then the page has no card for it.

const PREDICTED = "Hollow and dashed: predicted by the model, not measured; bands are what the prediction allows for.";

const EFFICIENCIES = [
  ["efficiency", "parallel"], ["normalised", "work-normalised"], ["balance", "load balance"],
  ["communication", "communication"],
];
const EFFICIENCY_WORDS = {
  efficiency: "Speedup over the number of ranks.",
  normalised: "Speedup over ranks, where pixels that tiles compute for their overlap count as work.",
  balance: "Mean over the slowest of the ranks' time of computing.",
  communication: "The slowest rank's time of computing over the whole iteration.",
};

/** A chart's sections, in the order of the page. */
const SECTIONS = [
  { title: "Scaling", charts: [speedupChart, efficiencyChart, secondsChart, weakChart, contentionChart] },
  { title: "Inside a curve", charts: [componentChart, timeChart, loadChart, trafficChart, stepsChart], chooses: "curve" },
  { title: "Messages that were counted", charts: [countsChart, balanceChart] },
  { title: "Memory", charts: [memoryChart, widthTimeChart] },
  { title: "Batches", charts: [throughputChart, batchMemoryChart] },
  { title: "Tiles", charts: [overlapChart, overlapQualityChart] },
  { title: "Comparison", charts: [compareChart, compareMemoryChart] },
  { title: "Convergence", charts: [convergenceChart, psnrTimeChart] },
];

function speedupChart(view) {
  const curves = view.curves.filter(({ mode }) => mode !== "weak");
  const series = curves.flatMap((curve) => pointSeries(curve, "speedup"));
  if (series.length === 0) return null;
  const ranks = curves.flatMap(({ measured, predicted }) => [...measured, ...predicted]).map((one) => one.ranks);
  const ends = [smallest(ranks), largest(ranks)];
  const error = predictionError(curves);
  return {
    id: "speedup", title: "Strong scaling",
    words: "Speedup of an iteration over the fewest ranks that were measured.",
    notes: [hasPredictions(series) && PREDICTED, error !== null
      && `Where both exist, predicted and measured times differ by ${format.percent(error)} at the most.`],
    x: { name: "ranks", log: 2 }, y: { log: 2, label: (value) => `${format.number(value)}×` },
    series: [{ name: "ideal", line: "ideal", points: ends.map((end) => [end, end]) }, ...series],
  };
}

function efficiencyChart(view) {
  const curves = view.curves.filter(({ mode }) => mode !== "weak");
  const choices = EFFICIENCIES.filter(([field]) =>
    curves.some((curve) => [...curve.measured, ...curve.predicted].some((one) => one[field] !== null)));
  if (choices.length === 0) return null;
  const field = chosen(view, "efficiency", choices);
  const series = curves.flatMap((curve) => pointSeries(curve, field));
  return {
    id: "efficiency", title: "Efficiency", words: EFFICIENCY_WORDS[field], choices, choice: field,
    notes: [hasPredictions(series) && PREDICTED],
    x: { name: "ranks", log: 2 }, y: { min: 0, atLeast: 1, label: (value) => `${Math.round(100 * value)} %` }, series,
  };
}

function secondsChart(view) {
  const curves = view.curves.filter(({ mode }) => mode !== "weak");
  const series = curves.flatMap((curve) => pointSeries(curve, "seconds"));
  return series.length === 0 ? null : {
    id: "seconds", title: "Time of an iteration",
    words: "Median over all iterations of the slowest rank; whiskers from the fastest repetition to the slowest.",
    notes: [hasPredictions(series) && PREDICTED],
    x: { name: "ranks", log: 2 }, y: { log: 2, label: format.seconds }, series,
  };
}

function weakChart(view) {
  const series = view.curves.filter(({ mode }) => mode === "weak").flatMap((curve) => pointSeries(curve, "efficiency"));
  return series.length === 0 ? null : {
    id: "weak", title: "Weak scaling",
    words: "Time on the fewest ranks over time on more of them, when the image grows with the ranks.",
    notes: [hasPredictions(series) && PREDICTED],
    x: { name: "ranks", log: 2 }, y: { min: 0, atLeast: 1, label: (value) => `${Math.round(100 * value)} %` }, series,
  };
}

/** A curve as two lines of one name: what was measured, with whiskers, and what was predicted. */
function pointSeries(curve, field) {
  const line = (points, isPredicted) => {
    const shown = points.filter((one) => one[field] !== null && one[field] !== undefined);
    return shown.length === 0 ? [] : [{
      name: curve.label, color: curve.color, symbol: curve.symbol, isPredicted,
      points: shown.map((one) => [one.ranks, one[field]]),
      whiskers: shown.flatMap((one) => whisker(one, field)),
      hover: shown.map((one) => () => hoverOfPoint(curve, one)),
    }];
  };
  return [...line(curve.measured, false), ...line(curve.predicted, true)];
}

/** From the slowest repetition to the fastest, on the scale of the field. */
function whisker(one, field) {
  const ends = one.predicted ? one.allowed : one.repetitions < 2 ? null : [one.low, one.high];
  if (!ends || !["speedup", "efficiency", "seconds"].includes(field)) return [];
  const at = (seconds) => field === "seconds" ? seconds : one[field] * one.seconds / seconds;
  return [[one.ranks, at(ends[0]), at(ends[1])]];
}

function hoverOfPoint(curve, one) {
  return {
    title: curve.label, isPredicted: one.predicted,
    pairs: [
      ["ranks", format.count(one.ranks)],
      ["iteration", show(one.seconds, format.seconds)],
      one.allowed && ["allowed for", `${format.seconds(one.allowed[0])} to ${format.seconds(one.allowed[1])}`],
      one.repetitions > 1 && ["repetitions", `${one.repetitions}: ${format.seconds(one.low)} to ${format.seconds(one.high)}`],
      ["speedup", show(one.speedup, format.times)],
      ["efficiency", show(one.efficiency, format.percent)],
      one.normalised !== null && ["work-normalised", format.percent(one.normalised)],
      one.balance !== null && ["load balance", format.percent(one.balance)],
      one.communication !== null && ["communication", format.percent(one.communication)],
      one.bytes !== null && ["sent", format.bytes(one.bytes)],
      one.peak !== null && ["memory of a rank", format.bytes(one.peak)],
    ],
  };
}

function componentChart(view) {
  const curve = view.curve;
  if (!curve) return null;
  const lines = [["total", "speedup", "--s4"], ["data", "dataSpeedup", "--data"], ["prior", "priorSpeedup", "--prior"]];
  const series = lines.flatMap(([name, field, color], index) => pointSeries(
    { ...curve, label: name, color, symbol: SYMBOLS[index] }, field));
  if (series.every(({ name }) => name === "total")) return null;
  const ranks = [...curve.measured, ...curve.predicted].map((one) => one.ranks);
  const ends = [smallest(ranks), largest(ranks)];
  return {
    id: "components", title: "Speedup of the components",
    words: "Of the slowest rank: the data term and the prior, communication included, and the whole iteration.",
    notes: [hasPredictions(series) && PREDICTED],
    x: { name: "ranks", log: 2 }, y: { log: 2, label: (value) => `${format.number(value)}×` },
    series: [{ name: "ideal", line: "ideal", points: ends.map((end) => [end, end]) }, ...series],
  };
}

function timeChart(view) {
  if (!view.curve) return null;
  const points = [...view.curve.measured, ...view.curve.predicted]
    .sort((a, b) => a.ranks - b.ranks || a.predicted - b.predicted);
  const choices = [["seconds", "seconds"], ["share", "share"]];
  const choice = chosen(view, "time", choices);
  const isShare = choice === "share";
  const parts = (one) => isShare ? sharesOf(one.parts) : one.parts;
  const bars = partBars(points, parts, [["component", COMPONENTS], ["activity", ACTIVITIES]]);
  return bars.length === 0 ? null : {
    id: "time", title: "Time by component and activity",
    words: "Mean over ranks. Left bar: what the time is for, communication included; right bar: what the ranks do.",
    choices, choice,
    notes: [points.some((one) => one.predicted) && "Pale, with a star: predicted by the model, not measured."],
    x: { name: "ranks", categories: points.map((one) => `${one.ranks}${one.predicted ? "*" : ""}`) },
    y: isShare ? { label: format.percent, atLeast: 1 } : { label: format.seconds },
    bars, pale: points.map((one) => Boolean(one.predicted)),
    hover: (index) => ({
      title: plural(points[index].ranks, "rank"), isPredicted: points[index].predicted,
      pairs: [["iteration", format.seconds(points[index].seconds)], ...pairsOf(points[index].parts)],
    }),
  };
}

function loadChart(view) {
  if (!view.curve) return null;
  const points = [...view.curve.measured, ...view.curve.predicted].filter((one) => one.ofRanks.length > 1);
  if (points.length === 0) return null;
  const choices = points.map((one) => [`${one.ranks}${one.predicted ? " predicted" : ""}`,
    `${one.ranks} ranks${one.predicted ? ", predicted" : ""}`]);
  const name = chosen(view, "load", choices, choices[choices.findLastIndex(([id]) => !id.includes("predicted"))]?.[0]);
  const one = points[choices.findIndex(([id]) => id === name)];
  const bars = partBars(one.ofRanks, ({ parts }) => parts, [["activity", ACTIVITIES]]);
  return bars.length === 0 ? null : {
    id: "load", title: "Load of the ranks", words: "Mean iteration of each rank, by what it does.",
    choices, choice: name, asList: choices.length > 3,
    notes: [one.predicted && "Pale: predicted by the model, not measured."],
    x: { name: "rank", categories: one.ofRanks.map(({ rank }) => `${rank}`) }, y: { label: format.seconds },
    bars, pale: one.ofRanks.map(() => Boolean(one.predicted)),
    hover: (index) => ({
      title: `rank ${one.ofRanks[index].rank}`, isPredicted: one.predicted,
      pairs: [...pairsOf(one.ofRanks[index].parts), ["memory", show(one.ofRanks[index].peak, format.bytes)]],
    }),
  };
}

function trafficChart(view) {
  if (!view.curve) return null;
  const series = pointSeries({ ...view.curve, color: "--s2" }, "bytes")
    .map((one) => ({ ...one, name: one.isPredicted ? "predicted" : "measured" }))
    .filter(({ points }) => points.some((point) => point[1] > 0));
  return series.length === 0 ? null : {
    id: "traffic", title: "Data between ranks", words: "Bytes that all ranks together send in an iteration.",
    notes: [hasPredictions(series) && PREDICTED],
    x: { name: "ranks", log: 2 }, y: { min: 0, label: format.bytes }, series,
  };
}

function partBars(items, partsOfItem, stacks) {
  return stacks.flatMap(([stack, parts]) => parts.map((part) => ({
    name: part, stack, color: `--${part}`, values: items.map((item) => partsOfItem(item)[part]),
  }))).filter(({ values }) => values.some((value) => value > 0));
}

/** The parts of each split as parts of 1. */
function sharesOf(parts) {
  const shares = (names) => {
    const total = sum(names.map((name) => parts[name]));
    return names.map((name) => [name, total ? parts[name] / total : null]);
  };
  return Object.fromEntries([...shares(COMPONENTS), ...shares(ACTIVITIES)]);
}

function pairsOf(parts) {
  const total = sum(COMPONENTS.map((part) => parts[part])) ?? sum(ACTIVITIES.map((part) => parts[part]));
  return PARTS.filter((part) => parts[part] !== null)
    .map((part) => [part, `${format.seconds(parts[part])}, ${format.percent(parts[part] / total)}`, `--${part}`]);
}

function memoryChart(view) {
  const groups = byColor(view, "memory", ["model", "budget"], ["run", "system", "height", "threads", "batch"]);
  const notes = [];
  const series = groups.flatMap(({ label, color, symbol, members }) => {
    const line = (field, isPredicted) => {
      const shown = members.filter((one) => one[field] !== null);
      return shown.length === 0 ? [] : [{
        name: label, color, symbol, isPredicted, points: shown.map((one) => [one.width, one[field]]),
        hover: shown.map((one) => () => hoverOfMemory(label, one)),
      }];
    };
    const off = lineThrough(members.filter((one) => one.peak !== null).map((one) => [one.width, one.peak]));
    const errors = members.filter((one) => one.peak && one.predictedPeak)
      .map((one) => Math.abs(one.predictedPeak / one.peak - 1));
    const facts = [off !== null && `straight within ${format.percent(off)}`,
      errors.length > 0 && `predicted within ${format.percent(largest(errors))}`].filter(Boolean);
    if (facts.length > 0) notes.push(`${label}: ${facts.join(", ")}.`);
    return [...line("peak", false), ...line("predictedPeak", true)];
  });
  return series.length === 0 ? null : {
    id: "memory", title: "Memory and width",
    words: "Peak memory of a network for images of equal height and growing width.",
    notes: [hasPredictions(series) && "Hollow and dashed: what the plan predicts before it runs.", ...notes],
    x: { name: "width in pixels", isTight: true }, y: { min: 0, label: format.bytes }, series,
  };
}

function hoverOfMemory(label, one) {
  return {
    title: label, pairs: [
      ["image", one.size], ["measured", show(one.peak, format.bytes)],
      ["predicted", show(one.predictedPeak, format.bytes)], ["time", show(one.seconds, format.seconds)],
    ],
  };
}

function widthTimeChart(view) {
  const groups = byColor(view, "memory", ["model", "budget"], ["run", "system", "height", "threads", "batch"]);
  const series = groups.flatMap(({ label, color, symbol, members }) => {
    const shown = members.filter((one) => one.seconds > 0 && !one.predicted);
    return shown.length === 0 ? [] : [{
      name: label, color, symbol, points: shown.map((one) => [one.width, one.seconds]),
      hover: shown.map((one) => () => hoverOfMemory(label, one)),
    }];
  });
  return series.length === 0 ? null : {
    id: "width-time", title: "Time and width", words: "Time of the same runs.",
    x: { name: "width in pixels", isTight: true }, y: { min: 0, label: format.seconds }, series,
  };
}

const THROUGHPUTS = [["patches", "patches/s"], ["megapixels", "megapixels/s"], ["images", "images/s"]];

function throughputChart(view) {
  const field = chosen(view, "throughput", THROUGHPUTS);
  return batchChart(view, {
    id: "throughput", title: "Batch and throughput", words: "Patches of an image that are denoised at once.",
    choices: THROUGHPUTS, choice: field, value: (one) => throughputOf(one)[field],
    label: format.number,
  });
}

function batchMemoryChart(view) {
  return batchChart(view, {
    id: "batch-memory", title: "Batch and memory", words: "Peak memory of the same runs.",
    value: (one) => one.peak, label: format.bytes,
  });
}

function batchChart(view, { value, label, ...chart }) {
  const groups = byColor(view, "batch", ["model", "patch"], ["run", "system", "size", "ranks", "threads", "overlap"]);
  const series = groups.flatMap(({ label: name, color, symbol, members }) => {
    const sorted = members.filter((one) => value(one) !== null).sort((a, b) => a.batch - b.batch);
    const automatic = sorted.filter((one) => one.automaticBatch === one.batch);
    return sorted.length === 0 ? [] : [{
      name, color, symbol, points: sorted.map((one) => [one.batch, value(one)]),
      hover: sorted.map((one) => () => hoverOfBatch(name, one)),
    }, ...(automatic.length === 0 ? [] : [{
      name, color, symbol: "emptyCircle", isMark: true, points: automatic.map((one) => [one.batch, value(one)]),
      hover: automatic.map((one) => () => hoverOfBatch(name, one)),
    }])];
  });
  return series.length === 0 ? null : {
    ...chart, x: { name: "batch", log: 2 }, y: { min: 0, label }, series,
    notes: [series.some(({ isMark }) => isMark) && "Rings: the batch that is taken if nobody says one."],
  };
}

/** The study denoises one image, cut into patches of its own pixels. */
function throughputOf(one) {
  const images = one.seconds > 0 ? 1 / one.seconds : null;
  const sides = [one.height, one.width, one.depth].filter((side) => side !== null);
  const patches = one.patch ? sides.reduce((count, side) => count * Math.ceil(side / one.patch), 1) : null;
  return {
    images,
    megapixels: images && images * pixelsOf(one) / 1e6,
    patches: images && patches && images * patches,
  };
}

function hoverOfBatch(label, one) {
  const rates = throughputOf(one);
  return {
    title: label, pairs: [
      ["batch", format.count(one.batch)], ["image", one.size], ["time", show(one.seconds, format.seconds)],
      ...THROUGHPUTS.map(([field, name]) => [name, show(rates[field], format.number)]),
      ["memory", show(one.peak, format.bytes)],
    ],
  };
}

function compareChart(view) {
  const members = view.configurations.filter(({ study, seconds }) => study === "compare" && seconds > 0);
  if (members.length === 0) return null;
  const label = labeller(view.all.filter(({ study }) => study === "compare"), ["problem", "size"], OF_COMPARISON);
  const cases = [...groupBy(members, label).entries()].map(([name, group]) => ({ name, group, ...likenessOf(group) }));
  const systems = [...new Set(view.all.filter(({ study }) => study === "compare").map(({ system }) => system))];
  const find = ({ group }, system) => group.find((one) => one.system === system);
  const bars = systems.map((system, index) => ({
    name: system, stack: system, color: `--s${index % COLORS}`, values: cases.map((one) => {
      const found = find(one, system);
      return found ? one.secondsOf(found) : null;
    }),
  })).filter(({ values }) => values.some((value) => value !== null));
  const fastest = ({ group, secondsOf }) => smallest(group.map(secondsOf));
  const titles = cases.map(({ name, words }) => [name, words].filter(Boolean).join(" · "));
  const text = (one, found) => [format.seconds(one.secondsOf(found)),
    one.hasRatio && format.times(one.secondsOf(found) / fastest(one))].filter(Boolean).join(", ");
  return {
    id: "compare", title: "Time of an iteration in each system", words: "Median over all iterations; shorter is better.",
    x: { categories: titles }, y: { label: format.seconds }, bars, isHorizontal: true,
    hover: (index) => ({
      title: titles[index], pairs: systems.map((system) => [system, find(cases[index], system)])
        .filter(([, found]) => found && cases[index].secondsOf(found) !== null)
        .map(([system, found]) => [system, text(cases[index], found), `--s${systems.indexOf(system) % COLORS}`]),
    }),
  };
}

// What tells the cases of a comparison apart.
const OF_COMPARISON = ["run", "model", "patch", "operators", "ranks", "threads"];

/**
 * What compares between systems. Others have another data term in `tomography-3d`, so the denoisers do. They denoise an image in
 * one piece on every process, which haloscope shares among its ranks, so nothing does.
 */
function likenessOf(group) {
  const hasOthers = group.some(({ system }) => system !== "haloscope");
  const isDenoiser = hasOthers && group[0].problem === "tomography-3d";
  const isUnshared = hasOthers && group[0].ranks > 1 && group[0].patch === null;
  return {
    secondsOf: (one) => isDenoiser ? one.slowest.prior : one.seconds,
    hasRatio: !isUnshared,
    words: [isDenoiser && "denoiser only", isUnshared && "whole on every process but haloscope's"].filter(Boolean).join(" · "),
  };
}

const PROGRESS = [["psnr_db", "PSNR"], ["data_term", "data term"], ["relative_change", "relative change"]];

function convergenceChart(view) {
  // Ranks do not change the result, so one of the configurations that differ in them is enough.
  const isSolved = ({ predicted, rows }) => !predicted
    && rows.some((row) => row.iteration !== null && PROGRESS.some(([field]) => row[field] !== null));
  const members = view.configurations.filter(isSolved);
  const choices = PROGRESS.filter(([field]) => members.some(({ rows }) => rows.some((row) => row[field] !== null)));
  if (choices.length === 0) return null;
  const field = chosen(view, "convergence", choices);
  const all = view.all.filter(isSolved);
  const label = labeller(all, ["problem", "size"], ["run", "system", "model", "patch", "overlap", "tiling", "operators"]);
  const names = [...new Set(all.map(label))];
  const series = [...groupBy(members, label).entries()].map(([name, group]) => {
    const index = names.indexOf(name);
    const first = group.reduce((a, b) => b.ranks < a.ranks ? b : a);
    const points = [...groupBy(first.rows.filter((row) => row[field] !== null && row.iteration !== null),
      (row) => row.iteration).entries()].map(([iteration, rows]) => [iteration, rows[0][field]]);
    points.sort((a, b) => a[0] - b[0]);
    return {
      name, color: `--s${index % COLORS}`, symbol: SYMBOLS[index % SYMBOLS.length], points,
      hover: points.map(([iteration, value]) => () => ({
        title: name, pairs: [["iteration", format.count(iteration)], [Object.fromEntries(PROGRESS)[field],
          field === "psnr_db" ? format.decibels(value) : format.number(value)]],
      })),
    };
  }).filter(({ points }) => points.length > 1);
  const values = series.flatMap(({ points }) => points.map((point) => point[1]));
  const isLog = field !== "psnr_db" && values.every((value) => value > 0);
  const base = largest(values) / smallest(values) > 100 ? 10 : 2;
  return series.length === 0 ? null : {
    id: "convergence", title: "Convergence", words: "The same on any number of ranks.", choices, choice: field,
    notes: [randomNote(view, members)],
    x: { name: "iteration", isTight: true }, y: { log: isLog ? base : null, label: field === "psnr_db" ? (value) => `${digits(value)} dB`
      : format.number },
    series,
  };
}

/** That networks with random weights make bad images, so that a low PSNR surprises nobody. */
function randomNote(view, configurations) {
  const models = [...new Set(configurations.map(({ model }) => model))].filter((model) => view.random.has(model));
  return models.length > 0 && `Random weights: ${models.join(", ")}. The time is that of trained weights, but the image and `
    + "its PSNR say nothing of the network's quality.";
}

/** The configurations of a study in groups of one colour each, which filters do not change. */
function byColor(view, study, always, fields) {
  const all = view.all.filter((one) => one.study === study);
  const label = labeller(all, always, fields);
  const names = [...new Set(all.map(label))];
  const groups = groupBy(view.configurations.filter((one) => one.study === study), label);
  return names.filter((name) => groups.has(name)).map((name) => {
    const index = names.indexOf(name);
    const members = groups.get(name).slice().sort((a, b) => (a.width ?? 0) - (b.width ?? 0));
    return { label: name, color: `--s${index % COLORS}`, symbol: SYMBOLS[index % SYMBOLS.length], members };
  });
}

function chosen(view, id, choices, preferred = choices[0][0]) {
  const wanted = view.choices.get(id);
  return choices.some(([name]) => name === wanted) ? wanted : preferred;
}

const hasPredictions = (series) => series.some((one) => one.isPredicted);
