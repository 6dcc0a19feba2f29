// The time between a question and its answer: how long already, and a way out.

import { announce, byId } from "./dom.js";

let timer = null;

export function startWaiting(what, cancel) {
  const started = performance.now();
  const tick = () => {
    byId("elapsed").textContent = `${((performance.now() - started) / 1000).toFixed(1)} s`;
  };
  byId("waiting-for").textContent = what;
  byId("cancel").onclick = cancel;
  clearInterval(timer);
  tick();
  timer = setInterval(tick, 100);
  byId("waiting").hidden = false;
  byId("waiting").scrollIntoView({ block: "nearest" });
  announce(what);
}

export function stopWaiting() {
  clearInterval(timer);
  byId("waiting").hidden = true;
}
