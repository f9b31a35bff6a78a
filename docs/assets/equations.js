// Renders the equations of a page with KaTeX (MIT license), which lies in katex/: no network is needed.
document.querySelectorAll("div.arithmatex").forEach((element) => {
  const source = element.textContent.trim().replace(/^\\\[|\\\]$/g, "");
  katex.render(source, element, { displayMode: true, throwOnError: true });
});
