package history

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
)

// maxUpload bounds the body of an upload, with what stands between the images.
const maxUpload = MaxImages*MaxImage + 64<<10

// uploadImages is POST /api/projects/{project}/upload-images. Its answers have
// forms of their own (seed 002).
func (h api) uploadImages(c *call) (any, error) {
	if _, err := h.dirOf(c); err != nil {
		return nil, err
	}
	images, err := h.receive(c)
	if err != nil {
		for _, image := range images { // of a refused upload nothing stays
			h.o.Assets.remove(c.session, image.Data)
		}
		status := http.StatusBadRequest
		if e, ok := errors.AsType[*protocol.Error](err); ok && e.Kind != protocol.KindInvalid && e.Kind != protocol.KindTooLarge {
			status = e.Kind.Status()
		}
		reply.JSON(c.w, status, map[string]string{"error": protocol.AsError(err).Body().Message})
		return nil, nil
	}
	return map[string]any{"images": images}, nil
}

// receive keeps the images of an upload. If it fails it returns those that were
// kept by then.
func (h api) receive(c *call) ([]protocol.ChatImage, error) {
	none := protocol.Errorf(protocol.KindInvalid, "No image files provided")
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxUpload)
	parts, err := c.r.MultipartReader()
	if err != nil {
		return nil, none
	}
	var images []protocol.ChatImage
	for {
		part, err := parts.NextPart()
		switch {
		case errors.Is(err, io.EOF) && len(images) == 0:
			return nil, none
		case errors.Is(err, io.EOF):
			return images, nil
		case err != nil:
			return images, cutOff(err)
		case part.FormName() != "images":
			continue
		case len(images) == MaxImages:
			return images, protocol.Errorf(protocol.KindInvalid, "Too many files")
		}
		image, err := h.keepImage(c.session, part)
		if err != nil {
			return images, err
		}
		images = append(images, image)
	}
}

// cutOff is what a client hears of a body that can't be read to its end.
func cutOff(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return protocol.Errorf(protocol.KindTooLarge, "File too large")
	}
	return protocol.Errorf(protocol.KindInvalid, "The upload is malformed")
}

// keepImage keeps one image.
func (h api) keepImage(session protocol.SessionID, part *multipart.Part) (protocol.ChatImage, error) {
	content, err := io.ReadAll(io.LimitReader(part, MaxImage+1))
	if err != nil {
		return protocol.ChatImage{}, cutOff(err)
	}
	if len(content) > MaxImage {
		return protocol.ChatImage{}, protocol.Errorf(protocol.KindTooLarge, "File too large")
	}
	_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	image := protocol.ChatImage{Name: label(params["filename"]), Size: int64(len(content))}
	mimeType, ok := imageType(part.Header.Get("Content-Type"), content)
	if !ok {
		return image, protocol.Errorf(protocol.KindInvalid, "%s", invalidType)
	}
	image.MimeType = mimeType
	if image.Data, err = h.o.Assets.Put(session, image, content); err == nil {
		h.counts.uploads.Add(1)
	}
	return image, err
}

// getAsset is GET /api/assets/{asset}. What somebody has uploaded is never shown
// as a page: a document is only saved.
func (h api) getAsset(c *call) (any, error) {
	head, content, err := h.o.Assets.open(c.session, c.parts["asset"])
	if err != nil {
		return nil, err
	}
	show := "inline"
	if head.Type == "image/svg+xml" {
		show = "attachment"
	}
	header := c.w.Header()
	header.Set("Content-Type", head.Type)
	header.Set("Content-Disposition", mime.FormatMediaType(show, map[string]string{"filename": head.Name}))
	header.Set("Content-Length", fmt.Sprint(len(content)))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "private, max-age=86400, immutable")
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method != http.MethodHead {
		_, _ = c.w.Write(content) // a client that is gone needs nothing
	}
	return nil, nil
}
