// xterm.js writes its colours into <style> elements, which the page's
// Content-Security-Policy refuses. The build makes it create <adopted-style>
// elements instead, which put the same rules into a constructed style sheet:
// script that already runs may make those, injected markup may not.

class AdoptedStyle extends HTMLElement {
  readonly #sheet = new CSSStyleSheet();

  connectedCallback(): void {
    this.hidden = true;
    document.adoptedStyleSheets.push(this.#sheet);
  }

  disconnectedCallback(): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== this.#sheet);
  }

  override get textContent(): string {
    return '';
  }

  override set textContent(css: string | null) {
    this.#sheet.replaceSync(css ?? '');
  }
}

customElements.define('adopted-style', AdoptedStyle);
