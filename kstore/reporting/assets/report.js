"use strict";
(() => {
  const pictures = JSON.parse(document.getElementById("pictures").textContent);
  const STATES = ["active", "sealed", "past retention", "dirty", "damaged"];
  const STATE_COLORS = ["active", "sealed", "past", "dirty", "damaged"];
  const root = document.documentElement;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);

  function color(name) {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  // ---- numbers and times ----------------------------------------------------------------------------------

  const short = (number) => Number(number.toPrecision(3)).toLocaleString("en");

  function size(number) {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (Math.abs(number) < 999.5) return `${short(number)} ${unit}`;
      number /= 1000;
    }
    return `${short(number)} TB`;
  }

  function amount(number, unit) {
    if (unit === "bytes") return size(number);
    if (Math.abs(number) < 1e6) return number.toLocaleString("en");
    return Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(number);
  }

  const exact = (number, unit) => `${number.toLocaleString("en")} ${unit}`;
  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  const STEPS = [1, SECOND, 5 * SECOND, 15 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR,
    12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 91 * DAY, 182 * DAY, 365 * DAY, 1826 * DAY];

  function utc(ms) {
    const moment = new Date(ms);
    return isNaN(moment) ? String(ms) : moment.toISOString().slice(0, 19).replace("T", " ");
  }

  // Chart.js leaves the places of times to a library of dates; UTC needs none.
  function timeAxis(min, max) {
    const isLong = max - min > 300 * DAY;
    const most = innerWidth >= 600 ? 9 : isLong ? 3 : 5;
    const step = STEPS.find((each) => (max - min) / each <= most) ?? Math.ceil((max - min) / most);
    const text = (ms) => {
      if (step >= DAY) return utc(ms).slice(isLong ? 0 : 5, 10);
      return max - min > DAY ? utc(ms).slice(5, 16) : utc(ms).slice(11, step >= MINUTE ? 16 : 19);
    };
    return {
      type: "linear", min, max: max > min ? max : min + 1,
      ticks: { callback: text, maxRotation: 0, autoSkip: false },
      afterBuildTicks: (axis) => {
        const ticks = [];
        for (let at = Math.ceil(min / step) * step; at <= max; at += step) ticks.push({ value: at });
        axis.ticks = ticks.length ? ticks : [{ value: min }];
      },
    };
  }

  // ---- pictures -------------------------------------------------------------------------------------------

  // The end of a name has the number of the partition.
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 7)}…${text.slice(-6)}` : text);

  function names(labels) {
    const most = innerWidth < 600 ? 14 : 32;
    return {
      type: "category", labels, grid: { display: false },
      ticks: { autoSkip: false, callback: (at) => cut(labels[at], most) },
    };
  }

  const legend = (series) => ({ display: series.length > 1 });

  function bars(picture) {
    return {
      type: "bar",
      data: {
        labels: picture.labels,
        datasets: picture.series.map((each) => ({
          label: each.name, data: each.values, backgroundColor: color(each.color), borderRadius: 3,
          maxBarThickness: 22, minBarLength: 0,
        })),
      },
      options: {
        indexAxis: "y",
        interaction: { mode: "index", axis: "y", intersect: false },
        scales: {
          x: { stacked: true, ticks: { maxTicksLimit: innerWidth < 600 ? 4 : 8, maxRotation: 0,
            callback: (value) => amount(value, picture.unit) } },
          y: { ...names(picture.labels), stacked: true },
        },
        plugins: { legend: legend(picture.series), tooltip: { callbacks: {
          label: (item) => `${item.dataset.label}: ${exact(item.raw, picture.unit)}` } } },
      },
    };
  }

  function columns(picture) {
    return {
      type: "bar",
      data: {
        labels: picture.labels,
        datasets: picture.series.map((each) => ({
          label: each.name, data: each.values, backgroundColor: color(each.color), borderRadius: 3,
          maxBarThickness: 72, categoryPercentage: 0.92, barPercentage: 0.96,
        })),
      },
      options: {
        interaction: { mode: "index", intersect: false },
        scales: {
          x: { stacked: true, grid: { display: false } },
          y: { stacked: true, ticks: { precision: 0, callback: (value) => amount(value, picture.unit) } },
        },
        plugins: { tooltip: { filter: (item) => item.raw > 0, callbacks: {
          label: (item) => `${item.dataset.label}: ${exact(item.raw, picture.unit)}` } } },
      },
    };
  }

  function areas(picture) {
    const { start, step } = picture;
    const count = picture.series[0].values.length;
    return {
      type: "bar",
      data: {
        datasets: picture.series.map((each) => ({
          label: each.name, backgroundColor: color(each.color), barPercentage: 1, categoryPercentage: 1,
          inflateAmount: 0.4,
          data: each.values.map((bytes, at) => (
            { x: start + (at + 0.5) * step, y: bytes / (step / 1000), from: start + at * step })),
        })),
      },
      options: {
        interaction: { mode: "index", intersect: false },
        scales: {
          x: { ...timeAxis(start, start + count * step), stacked: true, offset: false, grid: { offset: false } },
          y: { stacked: true, beginAtZero: true, ticks: { maxTicksLimit: 6,
            callback: (value) => `${size(value)}/s` } },
        },
        plugins: { tooltip: { filter: (item) => item.raw.y > 0, callbacks: {
          title: (items) => (items.length ? `from ${utc(items[0].raw.from)}` : ""),
          label: (item) => `${item.dataset.label}: ${size(item.raw.y)}/s` } } },
      },
    };
  }

  function spans(picture) {
    const isTime = picture.unit === "time";
    const { labels } = picture;
    const used = STATES.map((_, at) => at).filter((at) => picture.spans.some((span) => span[3] === at));
    const card = color("card");
    const axis = isTime
      ? timeAxis(picture.min, picture.max)
      : { min: 0, ticks: { maxTicksLimit: innerWidth < 600 ? 4 : 8, maxRotation: 0,
        callback: (value) => amount(value, "offsets") } };
    if (!isTime) axis.min = Math.min(...picture.spans.map((span) => span[1]));
    return {
      type: "bar",
      data: {
        labels,
        datasets: used.map((state) => ({
          label: STATES[state], backgroundColor: color(STATE_COLORS[state]), grouped: false,
          borderSkipped: false, borderColor: card, borderWidth: { left: 1, right: 0, top: 0, bottom: 0 },
          borderRadius: 2, minBarLength: 4, maxBarThickness: 18,
          data: picture.spans.filter((span) => span[3] === state).map((span) => (
            { x: [span[1], Math.max(span[2], span[1])], y: labels[span[0]], text: span[4] })),
        })),
      },
      options: {
        indexAxis: "y",
        interaction: { mode: "nearest", intersect: true },
        scales: { x: axis, y: names(labels) },
        plugins: { legend: { display: true }, tooltip: { callbacks: {
          title: (items) => items[0]?.raw.y ?? "",
          label: (item) => `${item.dataset.label}: ${item.raw.text}`,
          afterLabel: (item) => (isTime ? `${utc(item.raw.x[0])} to ${utc(item.raw.x[1])}` : ""),
        } } },
      },
    };
  }

  // ---- keyboard -------------------------------------------------------------------------------------------

  // The arrow keys go through what the pointer would show: from value to value, and for spans in their order.
  function stops(chart, picture) {
    const sets = chart.data.datasets;
    if (picture.kind !== "spans") {
      return Array.from(sets[0].data, (_, index) => sets.map((_, datasetIndex) => ({ datasetIndex, index })));
    }
    return sets
      .flatMap((set, datasetIndex) => set.data.map((span, index) => ({ datasetIndex, index, span })))
      .sort((a, b) => picture.labels.indexOf(a.span.y) - picture.labels.indexOf(b.span.y)
        || a.span.x[0] - b.span.x[0])
      .map((each) => [each]);
  }

  function show(chart, elements, said) {
    const { x, y } = elements.length
      ? chart.getDatasetMeta(elements[0].datasetIndex).data[elements[0].index].tooltipPosition()
      : { x: 0, y: 0 };
    chart.setActiveElements(elements);
    chart.tooltip.setActiveElements(elements, { x, y });
    chart.update("none");
    const { title = [], body = [] } = elements.length ? chart.tooltip : {};
    said.textContent = [...title, ...body.flatMap((each) => [...each.lines, ...each.after])].join("; ");
  }

  function listen(canvas, picture, said) {
    let at = -1;
    canvas.addEventListener("keydown", (event) => {
      const chart = Chart.getChart(canvas);
      const all = stops(chart, picture);
      const moves = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
        Home: 0, End: all.length - 1 };
      if (event.key === "Escape") { at = -1; show(chart, [], said); return; }
      if (!(event.key in moves) || !all.length) return;
      event.preventDefault();
      at = Math.min(Math.max(moves[event.key], 0), all.length - 1);
      show(chart, all[at], said);
    });
    canvas.addEventListener("blur", () => { at = -1; show(Chart.getChart(canvas), [], said); });
  }

  // ---- the page -------------------------------------------------------------------------------------------

  const KINDS = { bars, columns, areas, spans };

  function draw() {
    Object.assign(Chart.defaults, { animation: false, maintainAspectRatio: false, color: color("soft"),
      borderColor: color("line") });
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Object.assign(Chart.defaults.plugins.legend, { align: "start" });
    Object.assign(Chart.defaults.plugins.legend.labels, { boxWidth: 12, boxHeight: 12, color: color("text") });
    Object.assign(Chart.defaults.plugins.tooltip, { backgroundColor: color("text"), titleColor: color("card"),
      bodyColor: color("card"), footerColor: color("card"), padding: 10, boxPadding: 4, cornerRadius: 6 });
    pictures.forEach((picture, at) => {
      const canvas = document.getElementById(`picture-${at}`);
      Chart.getChart(canvas)?.destroy();
      new Chart(canvas, KINDS[picture.kind](picture));
    });
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

  function paint() {
    button.textContent = isDark() ? "Light" : "Dark";
    draw();
  }

  button.disabled = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; paint(); });
  dark.addEventListener("change", paint);
  addEventListener("beforeprint", () => Object.values(Chart.instances).forEach((chart) => chart.resize()));
  pictures.forEach((picture, at) => listen(document.getElementById(`picture-${at}`), picture,
    document.getElementById(`said-${at}`)));
  paint();
})();
