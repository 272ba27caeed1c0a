// A click on a head of the table of cases sorts its rows; another click turns the order.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 20) continue;
    for (const [place, head] of [...table.tHead.rows[0].cells].entries()) {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const order = head.ariaSort === "ascending" ? "descending" : "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.ariaSort = order;
        const rows = [...body.rows].sort((one, other) =>
          one.cells[place].textContent.localeCompare(other.cells[place].textContent, "en", { numeric: true }));
        body.append(...(order === "ascending" ? rows : rows.reverse()));
      });
    }
  }
});
