package op

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// blankPage is the one address a browser may be sent to that no site answers.
const blankPage = "about:blank"

// maxBrowserURL bounds an address to open, in bytes.
const maxBrowserURL = 64 << 10

// CheckCDP returns the params of a cdp.send that may be sent to a browser, the
// sandbox's own or one with an extension, or why it may not: kind forbidden for
// a method or a member that isn't on the list, invalid for params that are
// malformed. Only what is known of a method passes: the next Chromium may add a
// member that reads files.
func CheckCDP(method string, args json.RawMessage) (map[string]json.RawMessage, error) {
	allowed, ok := allowedCDP[method]
	if !ok {
		return nil, protocol.Errorf(protocol.KindForbidden, "the method %.100q is not allowed on a browser", method)
	}
	params := map[string]json.RawMessage{}
	if text := bytes.TrimSpace(args); len(text) > 0 && !bytes.Equal(text, []byte("null")) {
		if err := protocol.UnmarshalStrict(text, &params); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "params must be an object")
		}
	}
	for name := range params {
		if !allowed.has(name) {
			return nil, protocol.Errorf(protocol.KindForbidden, "%s may not be called with the member %.100q", method, name)
		}
	}
	if allowed.url != "" {
		var address string
		if err := json.Unmarshal(params[allowed.url], &address); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "%s needs a URL", method)
		}
		if err := CheckBrowserURL(address); err != nil {
			return nil, err
		}
	}
	return params, nil
}

// CheckBrowserURL returns why nobody may have a browser opened at address: it
// may be at sites, never in files or in what runs as script.
func CheckBrowserURL(address string) error {
	if strings.EqualFold(address, blankPage) {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(address) > maxBrowserURL {
		return protocol.Errorf(protocol.KindInvalid, "not an http or https URL, nor %s", blankPage)
	}
	return nil
}

// AllowedCDPMethods lists the methods that [CheckCDP] knows, in no order.
func AllowedCDPMethods() []string { return slices.Collect(maps.Keys(allowedCDP)) }

// An allowance says with which members a method of the DevTools protocol may be
// called.
type allowance struct {
	members string // separated by spaces
	url     string // the member that is a URL to open; "": there is none
}

func (a allowance) has(member string) bool {
	return slices.Contains(strings.Fields(a.members), member)
}

// The methods that cdp.send may call, of the sandbox's browser and of one with an
// extension alike. What isn't here is refused, above all:
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
