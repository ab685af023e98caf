// Runs before the page is drawn, so that it is never drawn in the wrong colours first.
"use strict";
(() => {
  let wanted = null;
  try {
    wanted = localStorage.getItem("twinbus-theme");
  } catch {
    // A browser that keeps nothing goes by the system.
  }
  if (wanted === "light" || wanted === "dark") {
    document.documentElement.dataset.theme = wanted;
  }
})();
