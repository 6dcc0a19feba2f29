// Server-sent events (HTML's text/event-stream), read as the standard says.

// Nothing else ends a line: a passage may hold U+2028, at which a regular expression's `.` stops.
const LINE_END = /\r\n|\n|\r/;

export class EventReader {
  #rest = "";
  #afterReturn = false;
  #name = "";
  #data = [];

  // The events that end in this piece of the stream, wherever it was cut: [name, data].
  feed(text) {
    if (!text) return [];
    // the line feed of a line end whose carriage return came before
    const whole = this.#afterReturn && text.startsWith("\n") ? text.slice(1) : text;
    this.#afterReturn = whole.endsWith("\r");
    const lines = (this.#rest + whole).split(LINE_END);
    this.#rest = lines.pop();
    return lines.flatMap((line) => this.#read(line));
  }

  // The event that this line ends, or none.
  #read(line) {
    if (line) {
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#name = value;
      if (field === "data") this.#data.push(value);
      return [];
    }
    const events = this.#data.length ? [[this.#name || "message", this.#data.join("\n")]] : [];
    this.#name = "";
    this.#data = [];
    return events;
  }
}
