// Headings sort their table, and buttons filter it. Without scripts the table is complete and in its original order.
"use strict";
(() => {
  const number = (text) => {
    const match = /-?\d[\d,]*\.?\d*(e-?\d+)?/.exec(text);
    return match ? Number(match[0].replaceAll(",", "")) : Number.NaN;
  };
  const compare = (one, other) => {
    const [a, b] = [number(one), number(other)];
    return Number.isNaN(a) || Number.isNaN(b) ? one.localeCompare(other, "en", { numeric: true }) : a - b;
  };
  const sort = (table, heading) => {
    const index = [...heading.parentNode.children].indexOf(heading);
    const descending = heading.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((one, other) => compare(one.cells[index].innerText, other.cells[index].innerText));
    for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    body.append(...(descending ? rows.reverse() : rows));
  };
  const sortable = (table) => {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading));
      heading.append(button);
    }
  };
  const filter = (chips, table) => {
    const selected = new Set([...chips.querySelectorAll("[aria-pressed=true]")].map((chip) => chip.dataset.verdict));
    for (const row of table.tBodies[0].rows) row.hidden = selected.size > 0 && !selected.has(row.dataset.verdict);
  };
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("table.sortable").forEach(sortable);
    const chips = document.querySelector(".chips");
    const table = document.querySelector("table[data-filter]");
    if (!chips || !table) return;
    chips.addEventListener("click", (event) => {
      const chip = event.target.closest("button");
      if (!chip) return;
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      filter(chips, table);
    });
  });
})();
