// Steps through the rows of each timeline: the row's source and what memory holds after it are shown beside.
for (const section of document.querySelectorAll(".timeline")) {
  const rows = [...section.querySelectorAll("tbody tr")], scroll = section.querySelector(".scroll");
  const place = section.querySelector(".place"), memory = section.querySelector(".memory");
  let at = -1;
  const pick = (to, move) => {
    at = Math.max(0, Math.min(rows.length - 1, to));
    rows.forEach((r, i) => { r.classList.toggle("picked", i === at); r.toggleAttribute("aria-current", i === at); });
    const { file, line } = rows[at].dataset;
    place.textContent = file ? `${file}:${line}` : "this row has no source";
    for (const pre of section.querySelectorAll("aside pre")) {
      pre.hidden = pre.dataset.file !== file;
      for (const l of pre.children) {
        const far = Math.abs(l.dataset.line - line);
        l.hidden = far > 3;
        l.classList.toggle("here", far === 0);
      }
    }
    const words = new Map();
    rows.slice(0, at + 1).forEach((r, i) => r.dataset.object && words.set(r.dataset.object, [r.dataset.value, i === at]));
    memory.replaceChildren(...[...words].flatMap(([name, [value, now]]) => {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name; dd.textContent = value; dd.classList.toggle("now", now);
      return [dt, dd];
    }));
    if (move) rows[at].scrollIntoView({ block: "nearest" });
  };
  rows.forEach((r, i) => r.addEventListener("click", () => { pick(i); scroll.focus(); }));
  scroll.addEventListener("keydown", (e) => {
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, j: at + 1, k: at - 1, Home: 0, End: rows.length - 1 }[e.key];
    if (to === undefined || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    pick(to, true);
  });
  if (rows.length) pick(0, false);
}
// A page of one timeline listens at once.
const only = document.querySelectorAll(".timeline .scroll");
if (only.length === 1) only[0].focus({ preventScroll: true });
