"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const table = document.getElementById("table");
const body = table.tBodies[0];

function make(kind, text, ...children) {
  const element = document.createElement(kind);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

// differences from the chosen baseline, and their p-values
const baseline = document.getElementById("baseline");
function showBaseline() {
  for (const row of body.rows) {
    const [difference, p] = data.tests[baseline.value][row.dataset.row];
    row.lastElementChild.previousElementSibling.textContent = difference;
    row.lastElementChild.textContent = typeof p === "number" ? p.toFixed(3) : p;
  }
}
baseline.addEventListener("change", showBaseline);
showBaseline();

// Sorting: names from A to Z first, numbers from the largest, what has no value at the end.
table.querySelectorAll("thead th").forEach((header, column) => {
  header.querySelector("button").addEventListener("click", () => {
    const before = header.getAttribute("aria-sort");
    const ascending = before ? before === "descending" : column === 0;
    table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const sign = ascending ? 1 : -1;
    const rows = [...body.rows];
    rows.sort((one, other) => {
      const [left, right] = [one.cells[column], other.cells[column]];
      if (column === 0) return sign * left.textContent.localeCompare(right.textContent, undefined, { numeric: true });
      const [first, second] = [left, right].map((cell) => parseFloat(cell.textContent.replaceAll(",", "")));
      if (isNaN(first) || isNaN(second)) return isNaN(first) - isNaN(second);
      return sign * (first - second);
    });
    body.append(...rows);
  });
});

// Two systems: data.pairs has what the first of each two does better.
const [one, other] = ["one", "other"].map((name) => document.getElementById(name));
const place = document.getElementById("difference");

function translation(text, reference) {
  // Words that the reference does not have are set apart.
  const known = new Set(reference.split(" "));
  const line = make("dd");
  text.split(" ").forEach((word, number) => {
    if (number) line.append(" ");
    line.append(known.has(word) ? word : make("ins", word));
  });
  return line;
}

function sentence(number, systems) {
  const found = data.sentences[number];
  const list = make("dl", "", make("dt", "source"), make("dd", found.source));
  list.append(make("dt", "reference"), make("dd", found.reference));
  for (const system of systems) {
    const [text, score] = found.systems[system];
    list.append(make("dt", `${data.names[system]} (chrF ${score.toFixed(1)})`), translation(text, found.reference));
  }
  const box = make("div", "", list);
  box.className = "sentence";
  return box;
}

function ngrams(rows, systems) {
  const head = make("tr", "", ...["n-gram", ...systems.map((system) => data.names[system])].map((name) => make("th", name)));
  const lines = rows.map(([words, ...counts]) => make("tr", "", make("th", words), ...counts.map((count) => make("td", String(count)))));
  const box = make("div", "", make("table", "", make("thead", "", head), make("tbody", "", ...lines)));
  box.className = "scroll";
  return box;
}

function showDifference() {
  const chosen = [one.value, other.value];
  place.replaceChildren();
  if (chosen[0] === chosen[1]) {
    place.append(make("p", "Choose two different systems."));
    return;
  }
  const sides = make("div");
  sides.className = "sides";
  for (const systems of [chosen, [...chosen].reverse()]) {
    const pair = data.pairs[systems.join(" ")];
    const [better, worse] = systems.map((system) => data.names[system]);
    place.append(make("h4", `Sentences that ${better} translates better than ${worse}`));
    const { sentences, ngrams: counts } = pair;
    place.append(...(sentences.length ? sentences.map((number) => sentence(number, chosen)) : [make("p", "None.")]));
    const heading = make("h4", `N-grams that ${better} gets right more often`);
    sides.append(make("div", "", heading, counts.length ? ngrams(counts, systems) : make("p", "None.")));
  }
  place.append(sides);
}
if (place) {
  one.addEventListener("change", showDifference);
  other.addEventListener("change", showDifference);
  showDifference();
}
