"use strict";
// From rows to configurations, and from these to curves: grouping, medians, speedups. Nothing is drawn here.
//
// A row is one rank in one iteration of one repetition. A configuration is everything that has the same settings;
// a curve is configurations that differ in the number of ranks only.

// An iteration of a rank is split in two ways, each of which adds up to the whole: by the component that it works
// for, communication included, and by what it does.
const COMPONENTS = ["data", "prior", "rest"];
const ACTIVITIES = ["computing", "transfer", "waiting"];
const PARTS = [...COMPONENTS, ...ACTIVITIES];

const SETTINGS = ["run", "study", "predicted", "system", "problem", "mode", "backend", "model", "height", "width",
  "depth", "patch", "overlap", "batch", "budget", "level", "operators", "distribute", "layout", "device", "tiling", "ranks",
  "threads"];

// The settings that all points of a curve share. Weak scaling grows the problem with the ranks.
const OF_CURVE = ["run", "system", "problem", "mode", "backend", "model", "patch", "overlap", "batch", "distribute",
  "layout", "device", "tiling", "threads"];
const OF_STRONG_CURVE = [...OF_CURVE, "size", "operators"];

/** The rows that the page carries by column, as objects; absent cells are null. */
function unpack(data) {
  const rows = [];
  data.runs.forEach((run, index) => {
    for (let i = 0; i < run.rows; i++) rows.push({ run: data.runs[index].name });
  });
  for (const name of data.order) {
    const column = data.columns[name];
    const cell = !column ? () => null
      : column.codes ? (i) => column.codes[i] === null ? null : column.words[column.codes[i]]
      : (i) => column[i];
    rows.forEach((row, i) => { row[name] = cell(i); });
  }
  for (const row of rows) {
    row.size = sizeOf(row);
    const isScaling = row.study === "scaling";
    // Tables of earlier versions do not say what ranks share: everything.
    if (isScaling) row.distribute ??= "both";
    // Nor where the image is: on every rank, but for predictions under a name of their own.
    if (row.system === "haloscope-sharded") {
      row.system = "haloscope";
      row.layout = "sharded";
    }
    if (isScaling) row.layout ??= "replicated";
    row.tiling = !isScaling ? null : row.patch === null ? "untiled" : "tiled";
  }
  return rows;
}

/** 512², 64³, or the sides. */
function sizeOf({ height, width, depth }) {
  const sides = [depth, height, width].filter((side) => side !== null && side !== undefined);
  if (sides.length === 0) return null;
  if (sides.length > 1 && sides.every((side) => side === sides[0])) {
    return sides[0] + (sides.length === 2 ? "²" : "³");
  }
  return sides.join("×");
}

function pixelsOf({ height, width, depth }) {
  return (height ?? 1) * (width ?? 1) * (depth ?? 1);
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item); else groups.set(key, [item]);
  }
  return groups;
}

const keyBy = (fields) => (item) => JSON.stringify(fields.map((field) => item[field] ?? null));

const known = (values) => values.filter((value) => value !== null && value !== undefined && Number.isFinite(value));
const apply = (values, reduce) => { const found = known(values); return found.length ? reduce(found) : null; };
const sum = (values) => apply(values, (found) => found.reduce((a, b) => a + b, 0));
const mean = (values) => apply(values, (found) => sum(found) / found.length);
const largest = (values) => apply(values, (found) => found.reduce((a, b) => Math.max(a, b)));
const smallest = (values) => apply(values, (found) => found.reduce((a, b) => Math.min(a, b)));
const median = (values) => apply(values, (found) => {
  const sorted = found.slice().sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
});

/** Both splits of a row's time; null where the row does not say. */
function partsOf(row) {
  const total = row.total_seconds;
  const without = (values) => values.every((value) => value === null) ? null : Math.max(0, total - sum(values));
  return {
    data: row.data_seconds,
    prior: row.prior_seconds,
    rest: without([row.data_seconds, row.prior_seconds]),
    computing: without([row.transfer_seconds, row.waiting_seconds]),
    transfer: row.transfer_seconds,
    waiting: row.waiting_seconds,
  };
}

/** Rows of equal settings, measured together. */
function configurationsOf(rows) {
  return [...groupBy(rows, keyBy(SETTINGS)).values()].map((members) => {
    const settings = Object.fromEntries(SETTINGS.map((field) => [field, members[0][field]]));
    return { ...settings, size: members[0].size, rows: members, ...measure(members) };
  });
}

function measure(rows) {
  const repetitions = [...groupBy(rows, (row) => row.repetition).values()].map(measureRepetition);
  const iterations = repetitions.flatMap((repetition) => repetition.iterations);
  const all = (name) => repetitions.map((repetition) => repetition[name]);
  const ranks = [...groupBy(rows, (row) => row.rank).entries()]
    .sort(([a], [b]) => a - b)
    .map(([rank, ofRank]) => ({
      rank,
      parts: meanParts(ofRank.map(partsOf)),
      peak: largest(ofRank.map((row) => row.peak_bytes)),
    }));
  return {
    repetitions: repetitions.length,
    seconds: median(iterations.map(({ seconds }) => seconds)),
    low: smallest(all("seconds")),
    high: largest(all("seconds")),
    parts: Object.fromEntries(PARTS.map((part) => [part, median(repetitions.map(({ parts }) => parts[part]))])),
    slowest: Object.fromEntries(PARTS.map((part) => [part, median(iterations.map(({ slowest }) => slowest[part]))])),
    ...efficiencies(rows, iterations),
    bytes: median(all("bytes")),
    computed: median(all("computed")),
    kept: median(all("kept")),
    peak: largest(rows.map((row) => row.peak_bytes)),
    predictedPeak: largest(rows.map((row) => row.predicted_bytes)),
    psnr: lastOf(rows, "psnr_db"),
    // What a prediction allows for.
    allowed: rows[0].low_seconds === null ? null : [rows[0].low_seconds, rows[0].high_seconds],
    foretoldBytes: sum(rows.filter((row) => row.iteration === rows[0].iteration && row.repetition === rows[0].repetition)
      .map((row) => row.predicted_bytes_sent)),
    automaticBatch: lastOf(rows, "automatic_batch"),
    seamRms: lastOf(rows, "seam_rms"),
    seamLargest: lastOf(rows, "seam_largest"),
    ofRanks: ranks,
  };
}

/**
 * Load balance and communication efficiency of the POP project, over all that was measured: what the ranks computed,
 * the mean over the most, and the most over the time that passed.
 */
function efficiencies(rows, iterations) {
  const computed = [...groupBy(rows, (row) => row.rank).values()]
    .map((ofRank) => sum(ofRank.map((row) => partsOf(row).computing)));
  const busiest = largest(computed);
  const passed = sum(iterations.map(({ seconds }) => seconds));
  return {
    // A prediction has the row of one rank, which stands for all of them, and says nothing of the balance.
    balance: busiest && !rows[0].predicted ? mean(computed) / busiest : null,
    communication: busiest && passed ? busiest / passed : null,
  };
}

/**
 * An iteration lasts as long as its slowest rank; the other figures are means over ranks, or sums of them. The time of
 * a repetition is its median, so that of all iterations is between those of the repetitions.
 */
function measureRepetition(rows) {
  const iterations = [...groupBy(rows, (row) => row.iteration).values()].map((ranks) => {
    const seconds = largest(ranks.map((row) => row.total_seconds));
    const parts = ranks.map(partsOf);
    // A prediction has the row of one rank, which stands for all of them.
    const stands = (ranks[0].ranks ?? ranks.length) / ranks.length;
    const total = (values) => { const found = sum(values); return found === null ? null : found * stands; };
    return {
      seconds,
      parts: meanParts(parts),
      slowest: Object.fromEntries(PARTS.map((part) => [part, largest(parts.map((one) => one[part]))])),
      bytes: total(ranks.map((row) => row.bytes_sent)),
      computed: total(ranks.map((row) => row.pixels_computed)),
      kept: total(ranks.map((row) => row.pixels_kept)),
    };
  });
  const names = ["bytes", "computed", "kept"];
  return {
    iterations,
    seconds: median(iterations.map(({ seconds }) => seconds)),
    ...Object.fromEntries(names.map((name) => [name, mean(iterations.map((one) => one[name]))])),
    parts: meanParts(iterations.map(({ parts }) => parts)),
  };
}

function meanParts(list) {
  return Object.fromEntries(PARTS.map((part) => [part, mean(list.map((parts) => parts[part]))]));
}

/** The value of the last iteration that has one. */
function lastOf(rows, field) {
  let last = null;
  for (const row of rows) {
    if (row[field] !== null && (last === null || (row.iteration ?? 0) >= (last.iteration ?? 0))) last = row;
  }
  return last && last[field];
}

/**
 * The scaling curves among configurations. A process without ranks is where the curves of all backends begin.
 * Each point gets its speedup and efficiencies against the curve's fewest ranks: measured points against
 * measured ones, and predicted ones against predicted ones where there are any.
 */
function curvesOf(configurations) {
  const scaling = configurations.filter(({ study, mode }) => study === "scaling" && mode !== "contention");
  const isWeak = ({ mode }) => mode === "weak";
  const groups = [
    ...groupBy(scaling.filter((one) => !isWeak(one)), keyBy(OF_STRONG_CURVE)).values(),
    ...[...groupBy(scaling.filter(isWeak), keyBy(OF_CURVE)).values()].flatMap(splitByLoad),
  ];
  const keyOfAll = (fields) => keyBy(fields.filter((field) => field !== "backend"));
  const beginning = (curve) => {
    const keyOf = keyOfAll(isWeak(curve[0]) ? OF_CURVE : OF_STRONG_CURVE);
    const key = keyOf(curve[0]);
    return groups.find((other) => other[0].backend === "solo" && keyOf(other[0]) === key);
  };
  const used = new Set();
  const curves = [];
  for (const points of groups) {
    if (points[0].backend === "solo") continue;
    const hasFirst = points.some(({ ranks, predicted }) => ranks === 1 && !predicted);
    const first = hasFirst || points.every(({ predicted }) => predicted) ? null : beginning(points);
    if (first) used.add(first);
    curves.push(makeCurve([...(first ?? []), ...points], points[0]));
  }
  for (const points of groups) {
    if (points[0].backend === "solo" && !used.has(points)) curves.push(makeCurve(points, points[0]));
  }
  return curves;
}

/** Weak curves that begin with problems of different size: each point belongs to the one with its load per rank. */
function splitByLoad(points) {
  const fewest = smallest(points.map(({ ranks }) => ranks));
  const load = (point) => Math.log(pixelsOf(point) * (point.operators ?? 1) / point.ranks);
  const firsts = points.filter(({ ranks }) => ranks === fewest);
  const loads = [...new Set(firsts.map(load))];
  const nearest = (point) => loads.reduce((a, b) => Math.abs(load(point) - b) < Math.abs(load(point) - a) ? b : a);
  return [...groupBy(points, nearest).values()];
}

function makeCurve(configurations, settings) {
  const sorted = configurations.filter(({ seconds }) => seconds > 0).sort((a, b) => a.ranks - b.ranks);
  const split = (predicted) => sorted.filter((one) => Boolean(one.predicted) === predicted);
  const measured = split(false);
  const predicted = split(true);
  const base = measured[0] ?? predicted[0];
  const ownBase = predicted.find(({ ranks }) => base && ranks === base.ranks) ?? base;
  const isWeak = settings.mode === "weak";
  const compare = (base) => (one) => {
    const growth = isWeak ? one.ranks / base.ranks : 1;
    const speedup = base.ranks * growth * base.seconds / one.seconds;
    const work = one.computed && base.computed ? one.computed / base.computed / growth : null;
    const efficiency = speedup / one.ranks;
    const ratio = (part) => base.slowest[part] && one.slowest[part]
      ? base.ranks * growth * base.slowest[part] / one.slowest[part] : null;
    return {
      ...one, speedup, efficiency, base,
      normalised: work === null ? null : efficiency * work,
      dataSpeedup: ratio("data"), priorSpeedup: ratio("prior"),
    };
  };
  return {
    ...Object.fromEntries([...OF_STRONG_CURVE, "height", "width", "depth"].map((field) => [field, settings[field]])),
    size: isWeak && base ? base.size : settings.size,
    measured: measured.map(compare(base)),
    predicted: predicted.map(compare(ownBase)),
  };
}

/**
 * How far predictions are from measurements of the same curve and ranks, relative to these. The fewest ranks do not
 * count, because predictions begin with what was measured there.
 */
function predictionError(curves) {
  return largest(curves.flatMap(({ measured, predicted }) => predicted.map((one) => {
    const twin = measured.slice(1).find(({ ranks }) => ranks === one.ranks);
    return twin ? Math.abs(one.seconds / twin.seconds - 1) : null;
  })));
}

/** The straight line through points, and how far the farthest is from it, relative to the line. */
function lineThrough(points) {
  if (points.length < 3) return null;
  const x = mean(points.map((point) => point[0]));
  const y = mean(points.map((point) => point[1]));
  const slope = sum(points.map((point) => (point[0] - x) * (point[1] - y))) / sum(points.map((point) => (point[0] - x) ** 2));
  const at = (value) => y + slope * (value - x);
  return Number.isFinite(slope) ? largest(points.map((point) => Math.abs(point[1] / at(point[0]) - 1))) : null;
}

/** The fields in which items differ. */
function varying(items, fields) {
  return fields.filter((field) => new Set(items.map((item) => item[field] ?? null)).size > 1);
}
