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

  const isInside = (inner, outer) =>
    inner.left >= outer.left - 2 && inner.right <= outer.right + 2 &&
    inner.top >= outer.top - 2 && inner.bottom <= outer.bottom + 2;
  for (const figure of document.querySelectorAll("figure")) {
    for (const drawing of figure.querySelectorAll(".panel svg")) {
      const box = drawing.getBoundingClientRect();
      if (box.width < 50 || box.height < 50) problems.add(`${figure.id}: ${box.width} x ${box.height} pixels`);
      const sizes = [...drawing.querySelectorAll("path.line, image")].map((one) => one.getBBox());
      if (!sizes.some((size) => size.width + size.height > 0)) problems.add(`${figure.id}: an empty drawing`);
      for (const text of drawing.querySelectorAll("text")) {
        if (!isInside(text.getBoundingClientRect(), box)) problems.add(`${figure.id}: "${text.textContent}" is cut off`);
      }
    }
    for (const picture of figure.querySelectorAll("image")) {
      const image = new Image();
      image.src = picture.getAttribute("href");
      await image.decode().catch(() => problems.add(`${figure.id}: a picture is damaged`));
    }
  }

  // Contrast as WCAG 2 defines it: 4.5 of text, 3 of lines, but for those that only stand behind another.
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
  const written = "p, li, td, th, a, h1, h2, h3, h4, dt, dd, summary, select, button, svg text, path.line, path.mark";
  for (const element of document.body.querySelectorAll(written)) {
    if (element.closest(".other")) continue;
    const style = getComputedStyle(element);
    const colour = element.matches("text") ? style.fill : style.color;
    const found = contrast(channels(colour), ground(element));
    if (found < (element.matches("path") ? 3 : 4.5)) {
      problems.add(`${element.tagName} ${colour}: contrast ${found.toFixed(2)}`);
    }
  }
  return [...problems];
})();
