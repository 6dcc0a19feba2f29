// Not a module: it runs before the first paint, so that a chosen theme does not flash by as the other one.
"use strict";

(() => {
  const KEY = "openbook-theme";
  const root = document.documentElement;

  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };

  // storage may be forbidden; the theme then lasts as long as the page
  let kept = null;
  try {
    kept = localStorage.getItem(KEY);
  } catch {}
  apply(kept);

  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    if (!select) return;
    select.value = root.dataset.theme || "auto";
    select.addEventListener("change", () => {
      apply(select.value);
      try {
        localStorage.setItem(KEY, select.value);
      } catch {}
    });
  });
})();
