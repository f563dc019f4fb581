// What the reader narrows the page down to: for each setting, the values that are shown.

const FILTERS = [
  ["study", "study"], ["problem", "problem"], ["size", "size"], ["model", "model"], ["patch", "patch"],
  ["tiling", "tiles"], ["backend", "backend"], ["mode", "scaling"], ["distribute", "distributed"], ["layout", "layout"],
  ["device", "device"], ["system", "system"],
  ["operators", "operators"], ["threads", "threads a rank"], ["run", "run"],
];

// The memory study has dozens of sizes by design, which are the axis of its charts and no choice.
const SIZES_OF = ({ study }) => study !== "memory";

class Filters {
  constructor(configurations, changed) {
    this.changed = changed;
    this.chosen = new Map();
    this.predictions = true;
    this.hasPredictions = configurations.some(({ predicted }) => predicted)
      && configurations.some(({ predicted }) => !predicted);
    this.groups = FILTERS.map(([field, name]) => {
      const items = field === "size" ? configurations.filter(SIZES_OF) : configurations;
      const values = [...new Set(items.map((one) => one[field]))].filter((value) => value !== null);
      const order = new Map(items.map((one) => [one[field], field === "size" ? pixelsOf(one) : one[field]]));
      values.sort((a, b) => typeof order.get(a) === "number" ? order.get(a) - order.get(b) : String(a).localeCompare(b));
      return { field, name, values };
    }).filter(({ values }) => values.length > 1);
  }

  /** Whether a configuration is shown. Settings that do not apply to it do not hide it. */
  accept(one) {
    if (one.predicted && !this.predictions) return false;
    return this.groups.every(({ field }) => {
      const values = this.chosen.get(field);
      if (!values || values.size === 0 || one[field] === null) return true;
      return field === "size" && !SIZES_OF(one) ? true : values.has(one[field]);
    });
  }

  isActive() {
    return !this.predictions || [...this.chosen.values()].some((values) => values.size > 0);
  }

  draw(body, state) {
    const redraw = () => { this.draw(body, state); this.changed(); };
    const chip = (name, isPressed, click) => element("button", {
      type: "button", class: "chip", "aria-pressed": String(isPressed), click: () => { click(); redraw(); },
    }, name);
    const rows = this.groups.map(({ field, name, values }) => {
      const chosen = this.chosen.get(field) ?? new Set();
      this.chosen.set(field, chosen);
      return element("div", { class: "filter", role: "group", "aria-label": name, "data-filter": field },
        element("span", { class: "filter-name" }, name),
        element("div", { class: "chips" },
          chip("all", chosen.size === 0, () => chosen.clear()),
          values.map((value) => chip(String(value), chosen.has(value), () => {
            if (!chosen.delete(value)) chosen.add(value);
            if (chosen.size === values.length) chosen.clear();
          }))));
    });
    if (this.hasPredictions) {
      rows.push(element("div", { class: "filter", role: "group", "aria-label": "predictions", "data-filter": "predicted" },
        element("span", { class: "filter-name" }, "predictions"),
        element("div", { class: "chips" },
          chip("shown", this.predictions, () => { this.predictions = true; }),
          chip("hidden", !this.predictions, () => { this.predictions = false; }))));
    }
    const focused = body.contains(document.activeElement)
      ? [...body.querySelectorAll("button")].indexOf(document.activeElement) : -1;
    body.replaceChildren(...rows);
    // The button that was pressed is a new one now.
    body.querySelectorAll("button")[focused]?.focus();
    state.textContent = this.isActive() ? "· some rows are hidden" : "";
  }
}
