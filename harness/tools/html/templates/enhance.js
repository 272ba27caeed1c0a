"use strict";
/* Conveniences; every page is whole without them. */
for (const box of document.querySelectorAll(".find")) {
  const input = box.querySelector("input"), told = box.querySelector("output");
  box.hidden = box.dataset.needs !== undefined && !document.querySelector(box.dataset.needs);
  if (input.dataset.find === "log") {
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      let found = 0;
      for (const log of document.querySelectorAll("pre.log")) {
        log.textContent = log.textContent;
        if (!wanted) continue;
        const text = log.firstChild, lower = text.data.toLowerCase(), pieces = [];
        let from = 0;
        for (let at = lower.indexOf(wanted); at >= 0 && pieces.length < 2000; at = lower.indexOf(wanted, from)) {
          const mark = document.createElement("mark");
          mark.textContent = text.data.slice(at, at + wanted.length);
          pieces.push(text.data.slice(from, at), mark);
          from = at + wanted.length;
          found += 1;
        }
        pieces.push(text.data.slice(from));
        log.replaceChildren(...pieces);
        if (pieces.length > 1) { log.closest("details").open = true; }
      }
      const first = document.querySelector("pre.log mark");
      if (first) first.scrollIntoView({ block: "nearest" });
      told.textContent = wanted ? (found === 1 ? "1 place" : `${found} places`) : "";
    });
  } else {
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of document.querySelectorAll(`[data-row="${input.dataset.find}"]`)) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden && row.localName === "li";
      }
      told.textContent = words.length ? (shown === 1 ? "1 bundle" : `${shown} bundles`) : "";
    });
  }
}
for (const text of document.querySelectorAll("pre")) {
  const frame = document.createElement("div"), button = document.createElement("button");
  frame.className = "copied";
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy: ${text.getAttribute("aria-label") || "text"}`);
  button.addEventListener("click", async () => {
    const told = (word) => { button.textContent = word; setTimeout(() => { button.textContent = "Copy"; }, 2000); };
    try {
      await navigator.clipboard.writeText(text.textContent);
      told("Copied");
    } catch {
      getSelection().selectAllChildren(text);
      told("Selected");
    }
  });
  text.replaceWith(frame);
  frame.append(text, button);
}
