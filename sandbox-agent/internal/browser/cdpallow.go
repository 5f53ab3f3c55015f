package browser

import "strings"

// An allowance says with which members a method of the DevTools protocol may be
// called.
type allowance struct {
	members string // separated by spaces
	url     string // the member that is a URL to open; "": there is none
}

func (a allowance) has(member string) bool {
	for known := range strings.FieldsSeq(a.members) {
		if known == member {
			return true
		}
	}
	return false
}

// The methods that cdp.send may call. What isn't here is refused, above all:
//
//   - Browser, Target, SystemInfo, Tethering, Extensions, PWA: they reach beyond
//     the tab, to the process, its flags, other tabs and ports.
//   - Fetch, and Network but for nothing: they would change what the guard is
//     asked, and tell cookies and bodies of other sites.
//   - Storage, IndexedDB, CacheStorage, DOMStorage: they tell of all sites at once.
//   - DOM.setFileInputFiles, DOM.getFileInfo, Input.dispatchDragEvent,
//     Page.setInterceptFileChooserDialog: they name files.
//   - Page.setDownloadBehavior, Tracing, HeapProfiler, IO: they write files or
//     stream what is over the limits.
//   - Page.printToPDF and Page.captureSnapshot: their answers are over the limit.
//   - Page.startScreencast, Page.handleJavaScriptDialog: the agent's own.
//   - everything that only makes events: nobody would get them.
var allowedCDP = map[string]allowance{
	// To go somewhere: http, https and about:blank only.
	"Page.navigate":                      {members: "url", url: "url"},
	"Page.reload":                        {members: "ignoreCache"},
	"Page.stopLoading":                   {},
	"Page.getNavigationHistory":          {},
	"Page.navigateToHistoryEntry":        {members: "entryId"}, // where the tab has been
	"Page.getFrameTree":                  {},
	"Page.getLayoutMetrics":              {},
	"Page.createIsolatedWorld":           {members: "frameId worldName"}, // without universal access
	"Page.captureScreenshot":             {members: "format quality clip captureBeyondViewport optimizeForSpeed"},
	"Page.bringToFront":                  {},
	"Emulation.setDeviceMetricsOverride": {members: "width height deviceScaleFactor mobile"},
	"Emulation.setEmulatedMedia":         {members: "media features"},
	"Emulation.setTouchEmulationEnabled": {members: "enabled maxTouchPoints"},

	// To run script: what the page itself can, and nothing of the console's
	// own commands (includeCommandLineAPI).
	"Runtime.evaluate":           {members: "expression objectGroup silent contextId uniqueContextId returnByValue generatePreview userGesture awaitPromise throwOnSideEffect timeout replMode"},
	"Runtime.callFunctionOn":     {members: "functionDeclaration objectId arguments silent returnByValue generatePreview userGesture awaitPromise executionContextId uniqueContextId objectGroup throwOnSideEffect"},
	"Runtime.getProperties":      {members: "objectId ownProperties accessorPropertiesOnly generatePreview nonIndexedPropertiesOnly"},
	"Runtime.releaseObject":      {members: "objectId"},
	"Runtime.releaseObjectGroup": {members: "objectGroup"},
	"Runtime.terminateExecution": {},
	"Runtime.getHeapUsage":       {},

	// To read the document.
	"DOM.getDocument":                {members: "depth pierce"},
	"DOM.describeNode":               {members: "nodeId backendNodeId objectId depth pierce"},
	"DOM.requestNode":                {members: "objectId"},
	"DOM.resolveNode":                {members: "nodeId backendNodeId objectGroup executionContextId"},
	"DOM.querySelector":              {members: "nodeId selector"},
	"DOM.querySelectorAll":           {members: "nodeId selector"},
	"DOM.getOuterHTML":               {members: "nodeId backendNodeId objectId includeShadowDOM"},
	"DOM.getAttributes":              {members: "nodeId"},
	"DOM.getBoxModel":                {members: "nodeId backendNodeId objectId"},
	"DOM.getContentQuads":            {members: "nodeId backendNodeId objectId"},
	"DOM.getNodeForLocation":         {members: "x y includeUserAgentShadowDOM ignorePointerEventsNone"},
	"Accessibility.getFullAXTree":    {members: "depth frameId"},
	"Accessibility.getPartialAXTree": {members: "nodeId backendNodeId objectId fetchRelatives"},
	"Accessibility.queryAXTree":      {members: "nodeId backendNodeId objectId accessibleName role"},

	// To change it, as script can.
	"DOM.focus":                  {members: "nodeId backendNodeId objectId"},
	"DOM.scrollIntoViewIfNeeded": {members: "nodeId backendNodeId objectId rect"},
	"DOM.setAttributeValue":      {members: "nodeId name value"},
	"DOM.removeAttribute":        {members: "nodeId name"},
	"DOM.setOuterHTML":           {members: "nodeId outerHTML"},
	"DOM.removeNode":             {members: "nodeId"},

	// To point and type, as a person does. Commands of an editor are left out:
	// paste would tell what another has copied.
	"Input.dispatchMouseEvent": {members: "type x y modifiers timestamp button buttons clickCount force deltaX deltaY pointerType"},
	"Input.dispatchKeyEvent":   {members: "type modifiers timestamp text unmodifiedText keyIdentifier code key windowsVirtualKeyCode nativeVirtualKeyCode autoRepeat isKeypad isSystemKey location"},
	"Input.dispatchTouchEvent": {members: "type touchPoints modifiers timestamp"},
	"Input.insertText":         {members: "text"},
}
