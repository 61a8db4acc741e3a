// Draws the diagrams of a page. `make docs` puts mermaid beside this file; it is loaded only where a page has a diagram.
const found = [...document.querySelectorAll("pre.diagram")];
if (found.length) {
  const { mermaid } = await import("./mermaid/index.js");
  const dark = document.body.dataset.mdColorScheme === "slate";
  mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "neutral", securityLevel: "loose" });
  for (const place of found) {
    place.textContent = place.querySelector("code").textContent;
  }
  await mermaid.run({ nodes: found });
}
