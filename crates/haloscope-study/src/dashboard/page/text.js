// Numbers and names as text, and text as elements. Whatever comes from a table becomes text nodes, never markup.

const format = {
  count: (value) => value.toLocaleString("en-US"),
  seconds(value) {
    const [scaled, unit] = value === 0 || value >= 0.9995 ? [value, "s"]
      : value >= 0.9995e-3 ? [value * 1e3, "ms"] : [value * 1e6, "µs"];
    return `${digits(scaled)} ${unit}`;
  },
  bytes(value) {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let unit = 0;
    while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
    return `${unit === 0 ? value : digits(value)} ${units[unit]}`;
  },
  times: (value) => `${digits(value)}×`,
  percent: (value) => `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`,
  decibels: (value) => `${value.toFixed(2)} dB`,
  number: (value) => value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)
    ? value.toExponential(2) : digits(value),
};

/** Three significant digits, and all of those before the point. */
function digits(value) {
  if (value === 0) return "0";
  const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)) + 1e-9));
  return value.toFixed(Math.min(places, 6));
}

const show = (value, how) => value === null || value === undefined ? "–" : how(value);
const plural = (count, word) => `${format.count(count)} ${word}${count === 1 ? "" : "s"}`;

/** An element with attributes (functions are listeners) and children; strings become text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// How a setting is called where it is one of several in a label.
const CALLED = {
  patch: (value) => `patch ${value}`,
  overlap: (value) => `overlap ${value}`,
  batch: (value) => `batch ${value}`,
  operators: (value) => plural(value, "operator"),
  budget: (value) => value === "waves" ? "in waves" : `within ${value}`,
  level: (value) => `noise ${value}`,
  ranks: (value) => plural(value, "rank"),
  threads: (value) => `${plural(value, "thread")} a rank`,
  height: (value) => `height ${value}`,
  mode: (value) => value === "weak" ? "weak" : "",
  distribute: (value) => value === "both" ? "" : `only ${value} distributed`,
  layout: (value) => value === "sharded" ? "in shards" : "",
  device: (value) => `on ${value}`,
  tiling: (value) => value === "untiled" ? "untiled" : "",
};

/**
 * What tells an item from the others: the settings of `always`, and of `fields` those in which items differ that
 * are the same in `always`.
 */
function labeller(items, always, fields) {
  const groups = [...groupBy(items, keyBy(always)).values()];
  const used = [...always, ...fields.filter((field) => groups.some((group) => varying(group, [field]).length > 0))];
  return (item) => used
    .map((field) => item[field] === null || item[field] === undefined ? "" : (CALLED[field] ?? String)(item[field]))
    .filter(Boolean)
    .join(" · ") || "all";
}
