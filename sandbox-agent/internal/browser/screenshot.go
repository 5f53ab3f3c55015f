package browser

import (
	"context"
	"math"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/pipe"
)

const (
	// maxScreenshot bounds a picture, in bytes.
	maxScreenshot = 2 << 20
	// maxPicture bounds each side of a picture of a whole page, in pixels.
	maxPicture = 8000
)

// A picture is a screenshot.
type picture struct {
	data []byte
	mime string
}

// attempts are screenshot formats, best first: the first one within
// maxScreenshot is used.
var attempts = []struct {
	format  cdppage.CaptureScreenshotFormat
	mime    string
	quality int64
	scale   float64
}{
	{cdppage.CaptureScreenshotFormatPng, "image/png", 0, 1},
	{cdppage.CaptureScreenshotFormatJpeg, "image/jpeg", 80, 1},
	{cdppage.CaptureScreenshotFormatJpeg, "image/jpeg", 50, 0.5},
	{cdppage.CaptureScreenshotFormatJpeg, "image/jpeg", 30, 0.25},
}

// screenshot takes a picture of the window or of the whole page.
func (p *page) screenshot(ctx context.Context, whole bool) (picture, error) {
	clip, err := p.extent(ctx, whole)
	if err != nil {
		return picture{}, err
	}
	for _, a := range attempts {
		clip.Scale = a.scale
		params := cdppage.CaptureScreenshotParams{Format: a.format, Clip: &clip, CaptureBeyondViewport: &whole}
		if a.quality > 0 {
			params.Quality = &a.quality
		}
		res, err := cdp.Call(ctx, p.target, cdppage.CaptureScreenshot, params)
		if err != nil {
			if pipe.TooLarge(err) {
				continue
			}
			return picture{}, p.why(ctx, err)
		}
		if len(res.Data) <= maxScreenshot {
			return picture{res.Data, a.mime}, nil
		}
	}
	return picture{}, protocol.Errorf(protocol.KindTooLarge, "the screenshot would have more than %d MiB", maxScreenshot>>20)
}

// extent returns the part of the page for a screenshot.
func (p *page) extent(ctx context.Context, whole bool) (cdppage.Viewport, error) {
	metrics, err := cdp.Call(ctx, p.target, cdppage.GetLayoutMetrics, cdp.Empty{})
	if err != nil {
		return cdppage.Viewport{}, p.why(ctx, err)
	}
	if whole {
		size := metrics.CSSContentSize
		return cdppage.Viewport{
			Width: math.Min(math.Max(size.Width, 1), maxPicture), Height: math.Min(math.Max(size.Height, 1), maxPicture),
		}, nil
	}
	view := metrics.CSSVisualViewport
	return cdppage.Viewport{
		X: view.PageX, Y: view.PageY,
		Width: math.Min(view.ClientWidth, maxPicture), Height: math.Min(view.ClientHeight, maxPicture),
	}, nil
}
