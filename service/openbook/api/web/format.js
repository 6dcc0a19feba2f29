// Numbers and dates as people read them.

const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
// between a number and its unit, where no line breaks
const THIN = "\u202f";
const NUMBER = new Intl.NumberFormat("en-GB");

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.5) return `<1${THIN}%`;
  if (value > 99.5 && value < 100) return `>99${THIN}%`;
  return `${Math.round(value)}${THIN}%`;
}

// With the minus sign of a figure, not a hyphen.
export function decimals(value, places = 2) {
  const text = value.toFixed(places);
  return Number(text) === 0 ? (0).toFixed(places) : text.replace("-", "\u2212");
}

// A probability that may be tiny.
export function probability(value) {
  if (value === 0) return "0";
  return value < 0.001 ? "<0.001" : value.toFixed(value < 0.1 ? 3 : 2);
}

export function duration(seconds) {
  if (seconds < 0.0005) return `0${THIN}ms`;
  if (seconds < 1) return `${Math.max(1, Math.round(1000 * seconds))}${THIN}ms`;
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)}${THIN}s`;
}

export function count(value) {
  return NUMBER.format(value);
}

// "2018-12-20" -> "20 December 2018"; what is no such date stays as it is.
export function date(text) {
  if (!text) return "no date";
  const day = new Date(`${text}T00:00:00Z`);
  return Number.isNaN(day.valueOf()) ? text : DATE.format(day);
}

export function megabytes(bytes) {
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)}${THIN}MB` : `${(bytes / 1e9).toFixed(1)}${THIN}GB`;
}

// "From wiki-2018, text of 20 December 2018, generation 3": what every answer names; a folder's text has no date.
export function named(index) {
  return `${index.version}${dated(index)}, generation ${index.generation}`;
}

export function dated({ snapshot_date: day }) {
  return day ? `, text of ${date(day)}` : "";
}
