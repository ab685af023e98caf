// Runs before the page is drawn, so that it never flashes in the wrong colours.
"use strict";
(() => {
  let wanted = null;
  try {
    wanted = localStorage.getItem("twinbus-theme");
  } catch {
    // Without storage, follow the system's theme.
  }
  if (wanted === "light" || wanted === "dark") {
    document.documentElement.dataset.theme = wanted;
  }
})();
