// Scrolling a terminal by touch, which xterm.js doesn't know: wheel events are
// made of it, which also reach programs that use the mouse.

const leastPx = 4; // less is a finger that trembles

export function scrollByTouch(host: HTMLElement, signal: AbortSignal): void {
  let last: number | undefined;
  host.addEventListener('touchstart', (e) => (last = e.touches.length === 1 ? e.touches[0]?.clientY : undefined), { passive: true, signal });
  host.addEventListener(
    'touchmove',
    (e) => {
      const y = e.touches[0]?.clientY;
      if (last === undefined || y === undefined || e.touches.length !== 1) return;
      const deltaY = last - y;
      if (Math.abs(deltaY) < leastPx) return;
      last = y;
      e.target?.dispatchEvent(new WheelEvent('wheel', { deltaY, bubbles: true, cancelable: true, clientX: e.touches[0]?.clientX ?? 0, clientY: y }));
    },
    { passive: true, signal },
  );
}
