"use strict";
// The charts, the colours, and the tables as files. What is drawn is the JSON beside each chart; text goes in as text only.
(function () {
  const root = document.documentElement;
  const charts = [];

  function style(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  // Few digits, as in the tables.
  function figure(value) {
    if (value == null) return "not measured";
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-4 || size >= 1e15) return value.toExponential(2);
    if (size >= 999.5) return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 0 });
    return value.toPrecision(3);
  }

  // A chosen number, or a place between two of them.
  function exact(value) {
    if (value == null) return "";
    return Math.abs(value) >= 1e15 || (value !== 0 && Math.abs(value) < 1e-4)
      ? value.toExponential()
      : value.toLocaleString("en", { maximumFractionDigits: 4 });
  }

  // The labels of an axis stay short: 150k.
  function tick(value) {
    if (value == null) return "";
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(0);
    for (const [step, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
      if (size >= step) return +(value / (letter === "k" ? 1e3 : step)).toPrecision(4) + letter;
    }
    return String(+value.toPrecision(4));
  }

  // Escaped, as in the tables, what has no shape or turns the text around.
  function shown(text) {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
      (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
  }

  // A label beside an axis, which has only one line.
  function short(text) {
    const whole = shown(text);
    return whole.length > 48 ? whole.slice(0, 47) + "…" : whole;
  }

  function named(axis) {
    if (axis.unit === "1/s" && axis.title.endsWith("a second")) return axis.title;
    return axis.unit && !axis.title.endsWith(axis.unit) ? (axis.title ? axis.title + ", " + axis.unit : axis.unit) : axis.title;
  }

  // What a logarithmic axis cannot show is left out of the drawing; the table has it.
  function drawable(chart) {
    const keep = chart.at.map((x) => !chart.x.logarithmic || x > 0);
    const some = (values) => values.filter((_, n) => keep[n]);
    const lines = chart.lines.map((line) =>
      some(line.values).map((y) => (y != null && chart.y.logarithmic && y <= 0 ? null : y)));
    return [some(chart.at), ...lines];
  }

  // Places that are powers of two make an axis of powers of two.
  function base(places) {
    return places.every((x) => x > 0 && Number.isInteger(Math.log2(x))) ? 2 : 10;
  }

  // One place alone, or one value, would make an axis of no length.
  function widened(logarithmic) {
    return (u, least, most) => {
      if (least == null || most == null) return logarithmic ? [1, 10] : [0, 1];
      if (logarithmic) return least === most ? [least / 2, most * 2] : [least, most];
      const room = least === most ? Math.abs(least) || 1 : 0;
      return [least - room, most + room];
    };
  }

  function valueRange(logarithmic) {
    return (u, least, most) => {
      if (least == null || most == null) return logarithmic ? [1, 10] : [0, 1];
      if (logarithmic) return uPlot.rangeLog(least, most, 10, false);
      // What is never below nought begins there.
      return least >= 0 ? [0, most > 0 ? most * 1.08 : 1] : uPlot.rangeNum(least, most, 0.1, true);
    };
  }

  const dashes = [[8, 4], [3, 3], [12, 4, 3, 4], [16, 5], [6, 2, 2, 2, 2, 2]];

  // Lines differ by colour and by dashes: the first of ours is whole, ours are thick, those of a document are dotted and grey.
  function seriesOf(line, n, unit, first, dense) {
    const colour = line.whose === "document" ? "--c-document" : "--c" + (n % 6);
    const ours = line.whose === "ours";
    const dash = n === first ? undefined : line.whose === "document" ? [[2, 4], [2, 8], [1, 3]][n % 3] : dashes[n % dashes.length];
    return {
      colour,
      ours,
      label: shown(line.name) + (line.whose === "document" && !line.name.startsWith("document") ? " (the document)" : ""),
      stroke: () => style(colour),
      width: ours ? 2.5 : 1.5,
      dash,
      spanGaps: false,
      points: { show: dense ? undefined : true, size: ours ? 7 : 6, stroke: () => style(colour), fill: () => style(ours ? colour : "--paper") },
      value: (u, value, n, at) => at == null ? "" : figure(value) + (value != null && unit ? " " + short(unit) : ""),
    };
  }

  function axisOf(axis, side, places) {
    const common = {
      stroke: () => style("--soft"),
      grid: { stroke: () => style("--line"), width: 1 },
      ticks: { stroke: () => style("--line"), width: 1, size: 5 },
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      label: short(named(axis)),
      labelSize: 20,
      values: (u, splits) => splits.map(tick),
    };
    if (side === "y") {
      common.size = 52;
      if (axis.logarithmic) {
        const few = (u, splits) => splits.map((y) => (decade(u, y) ? y : null));
        [common.filter, common.grid.filter, common.ticks.filter] = [few, few, few];
      }
      return common;
    }
    common.size = 34;
    if (places.length <= 16) {
      // The places that were measured, as far as there is room for their labels.
      common.splits = (u) => {
        let last = -Infinity;
        return places.filter((x) => {
          if (x < u.scales.x.min || x > u.scales.x.max) return false;
          const at = u.valToPos(x, "x");
          if (at - last < 34) return false;
          last = at;
          return true;
        });
      };
    }
    return common;
  }

  // Decades have labels; so do the steps 2 and 5 where there are few decades.
  function decade(u, value) {
    const few = Math.log10(u.scales.y.max / u.scales.y.min) < 2.5;
    const first = +value.toExponential(6).split("e")[0];
    return first === 1 || (few && (first === 2 || first === 5));
  }

  // A finger that goes sideways chooses a part, as a mouse does; up and down it moves the page.
  function byFinger(u) {
    let from = null;
    const within = (event) => Math.min(Math.max(event.clientX - u.over.getBoundingClientRect().left, 0), u.over.clientWidth);
    const none = () => {
      from = null;
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    };
    u.over.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") from = within(event);
    });
    u.over.addEventListener("pointermove", (event) => {
      if (from == null || event.pointerType !== "touch") return;
      const to = within(event);
      u.setCursor({ left: to, top: u.over.clientHeight / 2 });
      u.setSelect({ left: Math.min(from, to), top: 0, width: Math.abs(to - from), height: u.over.clientHeight }, false);
    });
    u.over.addEventListener("pointerup", (event) => {
      if (from == null || event.pointerType !== "touch") return;
      const [least, most] = [from, within(event)].sort((a, b) => a - b);
      none();
      if (most - least > 12) u.setScale("x", { min: u.posToVal(least, "x"), max: u.posToVal(most, "x") });
    });
    u.over.addEventListener("pointercancel", none);
  }

  function draw(place) {
    const chart = JSON.parse(document.getElementById(place.dataset.of).textContent);
    const data = drawable(chart);
    const whole = () => {
      // The range of the first look.
      u.setData(data);
    };
    const options = {
      width: Math.max(place.clientWidth, 200),
      height: place.clientWidth < 600 ? 260 : 320,
      padding: [10, 16, 0, 0],
      cursor: { drag: { x: true, y: false }, points: { size: 9 } },
      legend: { live: true },
      // Where the pointer is, the legend says it; elsewhere that row would name an axis without a value.
      hooks: { setCursor: [(u) => u.root.classList.toggle("pointed", u.cursor.idx != null)] },
      scales: {
        x: { time: false, distr: chart.x.logarithmic ? 3 : 1, log: base(data[0]), range: widened(chart.x.logarithmic) },
        y: { distr: chart.y.logarithmic ? 3 : 1, range: valueRange(chart.y.logarithmic) },
      },
      axes: [axisOf(chart.x, "x", data[0]), axisOf(chart.y, "y", data[0])],
      series: [
        { label: shown(chart.x.title) || "at", value: (u, value) => value == null ? "–" : exact(value) + (value != null && chart.x.unit ? " " + short(chart.x.unit) : "") },
        ...chart.lines.map((line, n) => seriesOf(line, n, chart.y.unit, chart.lines.findIndex((one) => one.whose === "ours"), data[0].length > 40)),
      ],
    };
    place.textContent = "";
    const u = new uPlot(options, data, place);
    // What is told of the whole place is told of the drawing: the legend speaks for itself.
    for (const name of ["role", "aria-label"]) {
      u.root.querySelector("canvas").setAttribute(name, place.getAttribute(name));
      place.removeAttribute(name);
    }
    charts.push(u);
    mark(u);
    byFinger(u);
    let width = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth !== width && place.clientWidth > 0) {
        width = place.clientWidth;
        u.setSize({ width: Math.max(width, 200), height: width < 600 ? 260 : 320 });
      }
    }).observe(place);
    return whole;
  }

  // One that fails takes none of the others with it.
  function tried(place) {
    try {
      return draw(place);
    } catch (error) {
      console.error(error);
      place.textContent = "This chart could not be drawn. Its table stands below.";
      return () => {};
    }
  }

  // A cell of a CSV. What a spreadsheet would calculate stays text.
  function cell(value) {
    if (value == null) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
    return '"' + text.replaceAll('"', '""') + '"';
  }

  function csv(chart) {
    const head = [named(chart.x), ...chart.lines.map((line) => line.name)];
    const rows = chart.at.map((x, n) => [x, ...chart.lines.map((line) => line.values[n])]);
    return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  function save(chart) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(chart)], { type: "text/csv" }));
    link.download = (chart.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60) || "chart") + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function choose(theme) {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    for (const button of document.querySelectorAll("[data-theme-choice]")) {
      button.setAttribute("aria-pressed", String(button.dataset.themeChoice === theme));
    }
    recolour();
  }

  // A marker of the legend is a piece of its line: the same colour, width, dashes and point.
  function mark(u) {
    const part = (name, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      return element;
    };
    u.root.querySelectorAll(".u-series").forEach((row, n) => {
      const marker = row.querySelector(".u-marker");
      if (!marker || n === 0) return;
      const line = u.series[n];
      const [stroke, fill] = [style(line.colour), style(line.ours ? line.colour : "--paper")];
      const picture = part("svg", { width: 44, height: 10, "aria-hidden": "true" });
      picture.append(part("line", { x1: 0, y1: 5, x2: 44, y2: 5, stroke, "stroke-width": line.ours ? 2.5 : 1.5, "stroke-dasharray": (line.dash ?? []).join(" ") }));
      picture.append(part("circle", { cx: 22, cy: 5, r: 3, stroke, fill }));
      marker.replaceChildren(picture);
    });
  }

  function recolour() {
    for (const u of charts) {
      mark(u);
      u.redraw(false, true);
    }
  }

  // A page that is opened as a file may have no memory.
  function remembered() {
    try { return localStorage.getItem("baio-report-theme") || ""; } catch { return ""; }
  }
  function remember(theme) {
    try { localStorage.setItem("baio-report-theme", theme); } catch { /* It is asked again. */ }
  }

  // On a narrow screen rows are laid out as cards, and some browsers forget then that they were a table.
  for (const [elements, role] of [["", "table"], [" thead, .cards tbody", "rowgroup"], [" tr", "row"], [" td", "cell"],
    [" [scope=col]", "columnheader"], [" [scope=row], .rows tbody th", "rowheader"]]) {
    for (const element of document.querySelectorAll(".cards" + elements)) element.setAttribute("role", role);
  }

  choose(["light", "dark"].includes(remembered()) ? remembered() : "");
  document.querySelector(".theme").hidden = false;
  for (const button of document.querySelectorAll("[data-theme-choice]")) {
    button.addEventListener("click", () => {
      remember(button.dataset.themeChoice);
      choose(button.dataset.themeChoice);
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

  for (const figureOf of document.querySelectorAll("figure.chart")) {
    const plot = figureOf.querySelector(".plot");
    const tools = figureOf.querySelector(".tools");
    const whole = plot && tried(plot);
    tools.hidden = false;
    tools.querySelector(".csv").addEventListener("click", () =>
      save(JSON.parse(document.getElementById(tools.dataset.of).textContent)));
    const button = tools.querySelector(".whole");
    if (button) button.addEventListener("click", whole);
  }
})();
