// The table below the charts: configurations with their medians, sorted as the reader likes, and downloads.

const SHOWN_ROWS = 400;

const plain = (value) => String(value);
const rounded = (value) => String(Number(value.toPrecision(6)));

/** Heading, value, how it is shown, and how the download writes it. */
const TABLE = [
  ["study", (one) => one.study], ["run", (one) => one.run], ["system", (one) => one.system],
  ["problem", (one) => one.problem], ["size", (one) => one.size, plain, plain, pixelsOf],
  ["scaling", (one) => one.mode], ["backend", (one) => one.backend], ["model", (one) => one.model],
  ["weights", (one) => one.weights],
  ["ranks", (one) => one.ranks], ["origin", (one) => one.predicted ? "predicted" : "measured"],
  ["seconds", (one) => one.seconds || null, format.seconds, rounded],
  ["fastest", (one) => one.repetitions > 1 ? one.low : null, format.seconds, rounded],
  ["slowest", (one) => one.repetitions > 1 ? one.high : null, format.seconds, rounded],
  ["speedup", (one) => one.point?.speedup ?? null, format.times, rounded],
  ["efficiency", (one) => one.point?.efficiency ?? null, format.percent, rounded],
  ["work-normalised", (one) => one.point?.normalised ?? null, format.percent, rounded],
  ["load balance", (one) => one.balance, format.percent, rounded],
  ["communication", (one) => one.communication, format.percent, rounded],
  ["data", (one) => one.parts.data, format.seconds, rounded],
  ["prior", (one) => one.parts.prior, format.seconds, rounded],
  ["transfer", (one) => one.parts.transfer, format.seconds, rounded],
  ["waiting", (one) => one.parts.waiting, format.seconds, rounded],
  ["sent", (one) => one.bytes, format.bytes, rounded],
  ["memory", (one) => one.peak, format.bytes, plain],
  ["memory predicted", (one) => one.predictedPeak, format.bytes, plain],
  ["PSNR", (one) => one.psnr, format.decibels, rounded],
  ["patch", (one) => one.patch], ["overlap", (one) => one.overlap], ["batch", (one) => one.batch],
  ["budget", (one) => one.budget], ["noise", (one) => one.level], ["seams", (one) => one.seamRms, format.number, rounded],
  ["allowed from", (one) => one.allowed?.[0] ?? null, format.seconds, rounded],
  ["allowed to", (one) => one.allowed?.[1] ?? null, format.seconds, rounded],
  ["foretold", (one) => one.foretoldBytes, format.bytes, rounded],
  ["tiles", (one) => one.tiling], ["distributed", (one) => one.distribute], ["layout", (one) => one.layout],
  ["device", (one) => one.device],
  ["operators", (one) => one.operators], ["threads", (one) => one.threads],
  ["repetitions", (one) => one.predicted ? null : one.repetitions],
].map(([name, value, text = plain, raw = plain, order = value]) => ({ name, value, text, raw, order }));

class Table {
  /** Columns in which nothing is said, or always the same of few words, are left out. */
  constructor(all, order, random) {
    this.order = order;
    this.random = random;
    all = all.map((one) => this.complete(one));
    this.columns = TABLE.filter(({ name, value }) => {
      const values = new Set(all.map(value).map((one) => one ?? null));
      const isOne = values.size === 1;
      return !(isOne && (values.has(null) || ["run", "system", "scaling", "overlap", "origin", "study", "tiles", "distributed", "layout"].includes(name)));
    });
    this.sorting = null;
    this.count = element("p", { class: "words" });
    this.grid = element("table", {});
    this.element = element("section", { class: "card table", id: "table" },
      element("div", { class: "head" },
        element("div", {}, element("h2", {}, "Table"), this.count),
        element("div", { class: "choices" },
          element("button", { type: "button", id: "download-table", click: () => this.download("table") }, "Table as CSV"),
          element("button", { type: "button", id: "download-rows", click: () => this.download("rows") }, "All rows as CSV"))),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of configurations" }, this.grid));
  }

  draw(configurations) {
    this.items = configurations.map((one) => this.complete(one));
    if (this.sorting) {
      const { column, isDescending } = this.sorting;
      const compare = (a, b) => {
        const [x, y] = [column.order(a), column.order(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        const sign = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return isDescending ? -sign : sign;
      };
      this.items.sort(compare);
    }
    const rows = this.items.reduce((count, one) => count + one.rows.length, 0);
    const more = this.items.length > SHOWN_ROWS ? `; the first ${SHOWN_ROWS} are shown, the download has all` : "";
    this.count.textContent = `${plural(this.items.length, "configuration")} of ${plural(rows, "row")}${more}. `
      + "Times are medians over all iterations.";
    const head = this.columns.map((column) => {
      const isSorted = this.sorting?.column === column;
      const sort = isSorted ? (this.sorting.isDescending ? "descending" : "ascending") : "none";
      return element("th", { scope: "col", "aria-sort": sort },
        element("button", { type: "button", click: () => this.sort(column) }, column.name));
    });
    const body = this.items.slice(0, SHOWN_ROWS).map((one) => element("tr", { class: one.predicted ? "predicted" : null },
      this.columns.map(({ value, text }) => {
        const cell = value(one) ?? null;
        return element("td", { class: typeof cell === "number" ? "number" : null }, cell === null ? "" : text(cell));
      })));
    this.grid.replaceChildren(element("thead", {}, element("tr", {}, head)), element("tbody", {}, body));
  }

  /** A configuration with where its network's weights come from. */
  complete(one) {
    return { ...one, weights: one.model === null ? null : this.random.has(one.model) ? "random" : "file" };
  }

  sort(column) {
    const isAgain = this.sorting?.column === column;
    this.sorting = isAgain && this.sorting.isDescending ? null : { column, isDescending: isAgain };
    const place = this.columns.indexOf(column);
    this.draw(this.items);
    this.grid.querySelectorAll("th button")[place]?.focus();
  }

  /** The table as it is shown, or the rows behind it as a study writes them. */
  csv(what) {
    const quote = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const line = (cells) => cells.map((cell) => quote(cell === null || cell === undefined ? "" : String(cell))).join(",");
    const lines = what === "rows"
      ? [this.order, ...this.items.flatMap(({ rows }) => rows).map((row) => this.order.map((name) => row[name]))]
      : [this.columns.map(({ name }) => name), ...this.items.map((one) => this.columns.map(({ value, raw }) => {
        const cell = value(one) ?? null;
        return cell === null ? "" : raw(cell);
      }))];
    return lines.map(line).join("\n") + "\n";
  }

  download(what) {
    const link = element("a", {
      download: `haloscope-${what}.csv`, href: URL.createObjectURL(new Blob([this.csv(what)], { type: "text/csv" })),
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
}
