// What is wrong with the page, as sentences: what sticks out, is not drawn, is cut off or has too little contrast.
(async () => {
  const problems = new Set();
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) problems.add("the page is wider than the window");
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest(".scroll") && !element.matches(".scroll")) continue;
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > width + 1 || box.left < -1)) {
      problems.add(`${element.tagName} ${element.className} sticks out`);
    }
  }

  for (const picture of document.querySelectorAll("figure img")) {
    await picture.decode().catch(() => problems.add(`${picture.alt}: a picture is damaged`));
    if (picture.naturalWidth < 50 || picture.naturalHeight < 50) problems.add(`${picture.alt}: an empty drawing`);
  }

  // Contrast as WCAG 2 defines it: 4.5 of text.
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => sum + share * linear(rgb[i] / 255), 0);
  const contrast = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = channels(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const written = "p, li, td, th, a, h1, h2, h3, h4, dt, dd, summary, select, button";
  for (const element of document.body.querySelectorAll(written)) {
    const found = contrast(channels(getComputedStyle(element).color), ground(element));
    if (found < 4.5) problems.add(`${element.tagName}: contrast ${found.toFixed(2)}`);
  }
  return [...problems];
})();
