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

// blankPage is the one allowed address that isn't a site's.
const blankPage = "about:blank"

// maxBrowserURL bounds an address to open, in bytes.
const maxBrowserURL = 64 << 10

// CheckCDP returns the params of a cdp.send that may be sent to a browser, the
// sandbox's own or one with an extension. It fails with kind forbidden for a
// method or a member that isn't on the list, and with invalid for malformed
// params. Only known members pass: the next Chromium may add one that reads
// files.
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

// CheckBrowserURL says why no browser may be sent to address: sites are
// allowed, files and script URLs are not.
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

// AllowedCDPMethods returns the methods that [CheckCDP] allows, unordered.
func AllowedCDPMethods() []string { return slices.Collect(maps.Keys(allowedCDP)) }

// A CDPMethod is a method that [CheckCDP] allows, for readers that aren't in Go.
type CDPMethod struct {
	Name    string
	Members []string
	URL     string // the member that is a URL to open; "": none
}

// CDPMethods returns the methods that [CheckCDP] allows, by name.
func CDPMethods() []CDPMethod {
	var list []CDPMethod
	for _, name := range slices.Sorted(maps.Keys(allowedCDP)) {
		a := allowedCDP[name]
		list = append(list, CDPMethod{Name: name, Members: strings.Fields(a.members), URL: a.url})
	}
	return list
}

// An allowance lists the members with which a DevTools method may be called.
type allowance struct {
	members string // separated by spaces
	url     string // the member that is a URL to open; "": none
}

func (a allowance) has(member string) bool {
	return slices.Contains(strings.Fields(a.members), member)
}

// The methods that cdp.send may call, in the sandbox's browser and in one with
// an extension. All others are refused, above all:
//
//   - Browser, Target, SystemInfo, Tethering, Extensions, PWA: they reach beyond
//     the tab, to the process, its flags, other tabs and ports.
//   - Fetch, and Network but for nothing: they would change what the guard is
//     asked, and reveal cookies and bodies of other sites.
//   - Storage, IndexedDB, CacheStorage, DOMStorage: they cover all sites at once.
//   - DOM.setFileInputFiles, DOM.getFileInfo, Input.dispatchDragEvent,
//     Page.setInterceptFileChooserDialog: they name files.
//   - Page.setDownloadBehavior, Tracing, HeapProfiler, IO: they write files or
//     stream what is over the limits.
//   - Page.printToPDF and Page.captureSnapshot: their answers are over the limit.
//   - Page.startScreencast, Page.handleJavaScriptDialog: reserved for the agent.
//   - everything that only enables events: nobody would get them.
var allowedCDP = map[string]allowance{
	// Navigation: http, https and about:blank only.
	"Page.navigate":                      {members: "url", url: "url"},
	"Page.reload":                        {members: "ignoreCache"},
	"Page.stopLoading":                   {},
	"Page.getNavigationHistory":          {},
	"Page.navigateToHistoryEntry":        {members: "entryId"}, // pages that the tab has visited
	"Page.getFrameTree":                  {},
	"Page.getLayoutMetrics":              {},
	"Page.createIsolatedWorld":           {members: "frameId worldName"}, // without universal access
	"Page.captureScreenshot":             {members: "format quality clip captureBeyondViewport optimizeForSpeed"},
	"Page.bringToFront":                  {},
	"Emulation.setDeviceMetricsOverride": {members: "width height deviceScaleFactor mobile"},
	"Emulation.setEmulatedMedia":         {members: "media features"},
	"Emulation.setTouchEmulationEnabled": {members: "enabled maxTouchPoints"},

	// Script: what the page itself can do, without the console's own commands
	// (includeCommandLineAPI).
	"Runtime.evaluate":           {members: "expression objectGroup silent contextId uniqueContextId returnByValue generatePreview userGesture awaitPromise throwOnSideEffect timeout replMode"},
	"Runtime.callFunctionOn":     {members: "functionDeclaration objectId arguments silent returnByValue generatePreview userGesture awaitPromise executionContextId uniqueContextId objectGroup throwOnSideEffect"},
	"Runtime.getProperties":      {members: "objectId ownProperties accessorPropertiesOnly generatePreview nonIndexedPropertiesOnly"},
	"Runtime.releaseObject":      {members: "objectId"},
	"Runtime.releaseObjectGroup": {members: "objectGroup"},
	"Runtime.terminateExecution": {},
	"Runtime.getHeapUsage":       {},

	// Reading the document.
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

	// Changing it, as script can.
	"DOM.focus":                  {members: "nodeId backendNodeId objectId"},
	"DOM.scrollIntoViewIfNeeded": {members: "nodeId backendNodeId objectId rect"},
	"DOM.setAttributeValue":      {members: "nodeId name value"},
	"DOM.removeAttribute":        {members: "nodeId name"},
	"DOM.setOuterHTML":           {members: "nodeId outerHTML"},
	"DOM.removeNode":             {members: "nodeId"},

	// Mouse and keyboard, as a person uses them. Editor commands are left out:
	// paste would reveal what somebody else has copied.
	"Input.dispatchMouseEvent": {members: "type x y modifiers timestamp button buttons clickCount force deltaX deltaY pointerType"},
	"Input.dispatchKeyEvent":   {members: "type modifiers timestamp text unmodifiedText keyIdentifier code key windowsVirtualKeyCode nativeVirtualKeyCode autoRepeat isKeypad isSystemKey location"},
	"Input.dispatchTouchEvent": {members: "type touchPoints modifiers timestamp"},
	"Input.insertText":         {members: "text"},
}
