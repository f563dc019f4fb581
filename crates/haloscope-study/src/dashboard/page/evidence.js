// Charts of what stands beside times: the machine's own limit, counted messages, memory by step, seams, and PSNR over time.

/** How many times longer an iteration takes while other ranks have problems of their own. */
function contentionChart(view) {
  const beside = view.configurations.filter(({ study, mode, predicted }) => study === "scaling" && mode === "contention" && !predicted);
  const same = keyBy(["run", "system", "problem", "model", "size", "patch", "overlap", "batch", "operators", "device", "threads"]);
  const alone = (one) => view.all.filter((other) => other.study === "scaling" && !other.predicted && other.ranks === 1
    && other.mode === "strong" && same(other) === same(one))[0];
  const cases = beside.map((one) => ({ one, base: alone(one) })).filter(({ base }) => base);
  if (cases.length === 0) return null;
  const label = labeller(beside, ["problem", "size"], ["run", "backend", "model", "patch", "ranks", "threads"]);
  const parts = [["data", "--data"], ["prior", "--prior"], ["total", "--s4"]];
  const times = ({ one, base }, part) => {
    const [now, before] = [one, base].map((of) => part === "total" ? of.seconds : of.slowest[part]);
    return now && before ? now / before : null;
  };
  return {
    id: "contention", title: "The machine's own limit",
    words: "Independent problems side by side, one for each rank: how many times longer an iteration takes than alone.",
    x: { categories: cases.map(({ one }) => label(one)) }, y: { label: (value) => `${format.number(value)}×` }, isHorizontal: true,
    bars: parts.map(([part, color]) => ({
      name: part, stack: part, color, values: cases.map((one) => times(one, part)),
    })),
    hover: (index) => ({
      title: label(cases[index].one),
      pairs: parts.map(([part, color]) => [part, show(times(cases[index], part), format.times), color]),
    }),
  };
}

/** Memory of the processes of the chosen curve, iteration by iteration. */
function stepsChart(view) {
  if (!view.curve) return null;
  const points = view.curve.measured.filter(({ rows }) => rows.some((row) => row.iteration !== null && row.peak_bytes !== null));
  if (points.length === 0) return null;
  const choices = points.map((one) => [`${one.ranks}`, plural(one.ranks, "rank")]);
  const choice = chosen(view, "steps", choices, choices[choices.length - 1][0]);
  const one = points[choices.findIndex(([id]) => id === choice)];
  // Threads are one process, of which every row says the same.
  const isOne = one.backend !== "mpi" && one.backend !== "torchrun";
  const rows = one.rows.filter((row) => row.repetition === one.rows[0].repetition && (!isOne || row.rank === one.rows[0].rank));
  const line = (ofRank, field, isPredicted, index, name) => {
    const shown = ofRank.filter((row) => row[field] !== null).sort((a, b) => a.iteration - b.iteration);
    return shown.length === 0 ? [] : [{
      name, color: `--s${index % COLORS}`, symbol: SYMBOLS[index % SYMBOLS.length], isPredicted,
      points: shown.map((row) => [row.iteration, row[field]]),
      hover: shown.map((row) => () => ({
        title: name, pairs: [["iteration", format.count(row.iteration)], ["held", show(row.resident_bytes, format.bytes)],
          ["most so far", show(row.peak_bytes, format.bytes)]],
      })),
    }];
  };
  const series = [...groupBy(rows, (row) => row.rank).entries()].sort(([a], [b]) => a - b).flatMap(([rank, ofRank], index) => {
    const name = isOne ? "the process of all ranks" : `rank ${rank}`;
    return [...line(ofRank, "resident_bytes", false, index, name), ...line(ofRank, "peak_bytes", true, index, name)];
  });
  return series.length === 0 ? null : {
    id: "steps", title: "Memory by step and rank", words: "What a process holds after each iteration, and the most so far.",
    choices, choice, asList: choices.length > 3, notes: [hasPredictions(series) && "Hollow and dashed: the most so far."],
    x: { name: "iteration", isTight: true }, y: { min: 0, label: format.bytes }, series,
  };
}

/** What ranks sent, counted, and what the plan of the job foretold. */
function countsChart(view) {
  const members = view.configurations.filter(({ study }) => study === "counts");
  if (members.length === 0) return null;
  const all = view.all.filter(({ study }) => study === "counts");
  const label = labeller(all, ["problem", "size"], ["run", "layout", "model", "backend", "patch", "operators"]);
  const names = [...new Set(all.map(label))];
  const most = (one, field) => largest(one.rows.map((row) => row[field]));
  const differs = (one) => one.rows.some((row) => row.bytes_sent !== row.predicted_bytes_sent);
  const series = [...groupBy(members, label).entries()].flatMap(([name, group]) => {
    const index = names.indexOf(name);
    const sorted = group.filter(({ ranks }) => ranks > 1).sort((a, b) => a.ranks - b.ranks);
    const line = (field, isPredicted) => sorted.length === 0 ? [] : [{
      name, color: `--s${index % COLORS}`, symbol: SYMBOLS[index % SYMBOLS.length], isPredicted,
      points: sorted.map((one) => [one.ranks, most(one, field)]),
      hover: sorted.map((one) => () => ({
        title: name, pairs: [["ranks", format.count(one.ranks)], ["sent by one at most", show(most(one, "bytes_sent"), format.bytes)],
          ["foretold", show(most(one, "predicted_bytes_sent"), format.bytes)], ["sent by all", show(one.bytes, format.bytes)],
          ["rounds of exchanges", show(most(one, "halo_rounds"), format.count)]],
      })),
    }];
    return [...line("bytes_sent", false), ...line("predicted_bytes_sent", true)];
  });
  const wrong = members.filter(differs).length;
  return series.length === 0 ? null : {
    id: "counts", title: "Bytes of the busiest rank",
    words: "Sent in one iteration: counted, and by the plan of the job. No times, so ranks may be more than cores.",
    notes: ["Hollow and dashed: what the plan says before the job runs.",
      wrong === 0 ? "All ranks sent exactly what was foretold." : `${plural(wrong, "configuration")} sent something else than foretold.`],
    x: { name: "ranks", log: 2 }, y: { log: 10, label: format.bytes }, series,
  };
}

/** How even the parts of the image are, of the same runs. */
function balanceChart(view) {
  const members = view.configurations.filter(({ study, ranks }) => study === "counts" && ranks > 1);
  const all = view.all.filter(({ study }) => study === "counts");
  const label = labeller(all, ["problem", "size"], ["run", "layout", "model", "backend", "patch", "operators"]);
  const names = [...new Set(all.map(label))];
  const balance = ({ rows }) => {
    const pixels = rows.filter((row) => row.iteration === rows[0].iteration).map((row) => row.pixels_computed);
    return largest(pixels) ? mean(pixels) / largest(pixels) : null;
  };
  const series = [...groupBy(members, label).entries()].map(([name, group]) => {
    const index = names.indexOf(name);
    const shown = group.filter((one) => balance(one) !== null).sort((a, b) => a.ranks - b.ranks);
    return {
      name, color: `--s${index % COLORS}`, symbol: SYMBOLS[index % SYMBOLS.length],
      points: shown.map((one) => [one.ranks, balance(one)]),
      hover: shown.map((one) => () => ({
        title: name, pairs: [["ranks", format.count(one.ranks)], ["balance", format.percent(balance(one))]],
      })),
    };
  }).filter(({ points }) => points.length > 0);
  return series.length === 0 ? null : {
    id: "balance", title: "Balance of pixels", words: "Mean over the largest of the pixels that ranks denoise.",
    x: { name: "ranks", log: 2 }, y: { min: 0, atLeast: 1, label: (value) => `${Math.round(100 * value)} %` }, series,
  };
}

const SEAMS = [["seamRms", "root mean square"], ["seamLargest", "largest"]];

/** How far tiles are from the whole network, by their overlap. */
function overlapChart(view) {
  const field = chosen(view, "overlap", SEAMS);
  const groups = byColor(view, "overlap", ["model", "level"], ["run", "size", "patch"]);
  const series = groups.map(({ label, color, symbol, members }) => {
    const shown = members.filter((one) => one[field] !== null).sort((a, b) => a.overlap - b.overlap);
    return {
      name: label, color, symbol, points: shown.map((one) => [one.overlap, one[field]]),
      hover: shown.map((one) => () => hoverOfOverlap(label, one)),
    };
  }).filter(({ points }) => points.length > 0);
  if (series.length === 0) return null;
  const values = series.flatMap(({ points }) => points.map((point) => point[1]));
  return {
    id: "overlap", title: "Overlap and seams",
    words: "Difference between an image denoised in tiles and by the whole network, where white is 1.",
    choices: SEAMS, choice: field, notes: [randomNote(view, groups.flatMap(({ members }) => members))],
    x: { name: "overlap in pixels", isTight: true },
    y: { log: values.every((value) => value > 0) ? 10 : null, label: format.number }, series,
  };
}

/** The quality of the same images. */
function overlapQualityChart(view) {
  const groups = byColor(view, "overlap", ["model", "level"], ["run", "size", "patch"]);
  const series = groups.map(({ label, color, symbol, members }) => {
    const shown = members.filter(({ psnr }) => psnr !== null).sort((a, b) => a.overlap - b.overlap);
    return {
      name: label, color, symbol, points: shown.map((one) => [one.overlap, one.psnr]),
      hover: shown.map((one) => () => hoverOfOverlap(label, one)),
    };
  }).filter(({ points }) => points.length > 0);
  return series.length === 0 ? null : {
    id: "overlap-quality", title: "Overlap and quality", words: "PSNR of the images in tiles.",
    notes: [randomNote(view, groups.flatMap(({ members }) => members))],
    x: { name: "overlap in pixels", isTight: true }, y: { label: (value) => `${digits(value)} dB` }, series,
  };
}

function hoverOfOverlap(label, one) {
  return {
    title: label, pairs: [
      ["overlap", format.count(one.overlap)], ["patch", format.count(one.patch)],
      ["root mean square", show(one.seamRms, format.number)], ["largest", show(one.seamLargest, format.number)],
      ["PSNR", show(one.psnr, format.decibels)],
      ["pixels computed", show(one.computed && one.computed / pixelsOf(one), format.times)],
    ],
  };
}

/** Peak memory of a process in each system. */
function compareMemoryChart(view) {
  const members = view.configurations.filter(({ study, peak }) => study === "compare" && peak > 0);
  if (members.length === 0) return null;
  const all = view.all.filter(({ study }) => study === "compare");
  const label = labeller(all, ["problem", "size"], ["run", "model", "patch", "ranks"]);
  const cases = [...groupBy(members, label).entries()];
  const systems = [...new Set(all.map(({ system }) => system))];
  const find = (index, system) => cases[index][1].find((one) => one.system === system);
  return {
    id: "compare-memory", title: "Peak memory of a process",
    words: "The largest of its processes; ranks of haloscope that are threads are one process.",
    x: { categories: cases.map(([name]) => name) }, y: { label: format.bytes }, isHorizontal: true,
    bars: systems.map((system, index) => ({
      name: system, stack: system, color: `--s${index % COLORS}`, values: cases.map((_, at) => find(at, system)?.peak ?? null),
    })).filter(({ values }) => values.some((value) => value !== null)),
    hover: (index) => ({
      title: cases[index][0], pairs: systems.filter((system) => find(index, system)).map((system) =>
        [system, format.bytes(find(index, system).peak), `--s${systems.indexOf(system) % COLORS}`]),
    }),
  };
}

/** PSNR against the seconds that iterations took. */
function psnrTimeChart(view) {
  const isSolved = ({ study, mode, predicted, rows }) => !predicted && mode !== "weak" && mode !== "contention"
    && (study === "compare" || study === "scaling") && rows.some((row) => row.psnr_db !== null && row.iteration !== null);
  const subject = ({ problem, size }) => [problem, size].filter(Boolean).join(" · ") || "all";
  const solved = view.configurations.filter(isSolved);
  if (solved.length === 0) return null;
  // One problem at a time, in all systems, layouts and numbers of ranks; the one with the most systems first.
  const systems = (name) => new Set(solved.filter((one) => subject(one) === name).map(({ system }) => system)).size;
  const choices = [...new Set(solved.map(subject))].sort((a, b) => systems(b) - systems(a)).map((name) => [name, name]);
  const choice = chosen(view, "psnr-time", choices);
  const all = view.all.filter((one) => isSolved(one) && subject(one) === choice);
  const label = labeller(all, ["system", "ranks"], ["run", "study", "backend", "model", "patch", "threads", "distribute", "layout"]);
  const names = [...new Set(all.map(label))];
  const members = solved.filter((one) => subject(one) === choice);
  const series = members.map((one) => {
    const name = label(one);
    const index = names.indexOf(name);
    let passed = 0;
    const points = [...groupBy(one.rows, (row) => row.iteration).entries()].sort(([a], [b]) => a - b).map(([, rows]) => {
      // The slowest rank of each repetition, and the middle one of the repetitions.
      passed += median([...groupBy(rows, (row) => row.repetition).values()].map((ranks) => largest(ranks.map((row) => row.total_seconds))));
      return [passed, rows.find((row) => row.psnr_db !== null)?.psnr_db ?? null];
    }).filter(([, value]) => value !== null);
    return {
      name, color: `--s${index % COLORS}`, symbol: SYMBOLS[index % SYMBOLS.length], points,
      hover: points.map(([seconds, value], at) => () => ({
        title: name, pairs: [["iteration", format.count(at + 1)], ["after", format.seconds(seconds)], ["PSNR", format.decibels(value)]],
      })),
    };
  }).filter(({ points }) => points.length > 1);
  return series.length === 0 ? null : {
    id: "psnr-time", title: "PSNR over time", words: "Quality against the seconds that the iterations took, without what came before them.",
    choices, choice, asList: true,
    notes: [randomNote(view, members)],
    x: { name: "seconds", log: 10, label: format.seconds }, y: { label: (value) => `${digits(value)} dB` }, series,
  };
}
