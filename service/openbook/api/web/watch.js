// Looks at the index again and again, while somebody looks at the page.

import { call } from "./api.js";

const CALM_MS = 5000;
const SWAPPING_MS = 400;

// `on({index, progress})` after each look, `onLost(problem)` where one fails; how a swap goes is asked for while
// `curious()`, and as long as one runs. Returns `look`, which looks at once.
export function watch(on, onLost, curious) {
  let timer = null;
  let looks = 0;
  let progress = { state: "idle" };

  async function look() {
    clearTimeout(timer);
    looks += 1;
    const mine = looks;
    let wait = CALM_MS;
    try {
      const wanted = curious() || progress.state === "running";
      const [index, swap] = await Promise.all([call("/index"), wanted ? call("/index/swap") : progress]);
      if (mine !== looks) return;
      progress = swap;
      if (progress.state === "running") wait = SWAPPING_MS;
      on({ index, progress });
    } catch (problem) {
      if (mine !== looks) return;
      onLost(problem);
    }
    if (!document.hidden) timer = setTimeout(look, wait);
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) look();
  });
  look();
  return look;
}
