package provider

import (
	"context"
	"encoding/base64"
	"errors"
	"html"
	"mime"
	"net/http"
	"net/mail"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

var gmailActions = []action{
	filtered(reads("gmail.search", searchMail), func(m *messages, keep func(kind, value string) bool) int {
		n := withhold(&m.Messages, func(one message) bool { return keep(KindSender, one.Sender) })
		if n > 0 {
			m.Estimate = nil // it counts what is withheld, too
		}
		return n
	}),
	filtered(reads("gmail.get", getMail), func(m *message, keep func(kind, value string) bool) int {
		if keep(KindSender, m.Sender) {
			return 0
		}
		*m = message{}
		return 1
	}),
	after(writes("gmail.send", sendMail), func(ctx context.Context, a *api, args *sendArgs) ([]Resource, error) {
		if args.ReplyTo == "" {
			return nil, nil
		}
		return a.senderOf(ctx, args.ReplyTo)
	}),
	after(writes("gmail.archive", archiveMail), lookupSender),
	after(writes("gmail.trash", trashMail), lookupSender),
	after(writes("gmail.mark_read", markRead), func(ctx context.Context, a *api, args *markReadArgs) ([]Resource, error) {
		return a.senderOf(ctx, args.Message)
	}),
}

const (
	mailPath      = "/gmail/v1/users/me/messages"
	maxFound      = 50 // messages of one search; each takes a request of its own
	mailAtOnce    = 5
	maxRecipients = 100
	maxMailBody   = 1 << 20
)

// A message is one as we tell of it.
type message struct {
	ID          string       `json:"id,omitempty"` // absent: all of it is withheld
	Thread      string       `json:"thread_id,omitempty"`
	From        string       `json:"from,omitempty"`
	Sender      string       `json:"from_address,omitempty"` // lower-case; absent if that can't be told for certain
	To          string       `json:"to,omitempty"`
	Cc          string       `json:"cc,omitempty"`
	Subject     string       `json:"subject,omitempty"`
	Date        string       `json:"date,omitempty"`
	Labels      []string     `json:"labels,omitempty"`
	Snippet     string       `json:"snippet,omitempty"`
	Body        string       `json:"body,omitempty"`
	BodyType    string       `json:"body_type,omitempty"` // text/plain or text/html
	Cut         bool         `json:"body_is_cut,omitempty"`
	Attachments []attachment `json:"attachments,omitempty"`
}

type attachment struct {
	Name string `json:"name"`
	Type string `json:"mime_type"`
	Size int64  `json:"size"`
}

// senderIn returns the address in a From header as it was sent, lower-case, ""
// if there isn't exactly one: a policy decides by it.
func senderIn(from string) string {
	list, err := mail.ParseAddressList(from)
	if err != nil || len(list) != 1 {
		return ""
	}
	return lower(list[0].Address)
}

type messages struct {
	Messages []message `json:"messages"`
	Estimate *int      `json:"estimated_total,omitempty"`
	NextPage string    `json:"next_page_token,omitempty"`
}

// A gmailMessage is one as Gmail writes it.
type gmailMessage struct {
	ID      string    `json:"id"`
	Thread  string    `json:"threadId"`
	Labels  []string  `json:"labelIds"`
	Snippet string    `json:"snippet"`
	Payload gmailPart `json:"payload"`
}

// A gmailPart is a message's MIME part, whose parts are in it.
type gmailPart struct {
	MIMEType string        `json:"mimeType"`
	Filename string        `json:"filename"`
	Headers  []gmailHeader `json:"headers"`
	Body     struct {
		Size       int64  `json:"size"`
		Data       string `json:"data"`         // base64url
		Attachment string `json:"attachmentId"` // data is to be had there
	} `json:"body"`
	Parts []gmailPart `json:"parts"`
}

type gmailHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// header returns a header's value, decoded.
func (p *gmailPart) header(name string) string {
	var decoder mime.WordDecoder
	for _, h := range p.Headers {
		if !strings.EqualFold(h.Name, name) {
			continue
		}
		if text, err := decoder.DecodeHeader(h.Value); err == nil {
			return text
		}
		return h.Value
	}
	return ""
}

// rawHeader returns it as it was sent. Where a header is there twice, which
// counts is anybody's guess: then there is none.
func (p *gmailPart) rawHeader(name string) string {
	found, n := "", 0
	for _, h := range p.Headers {
		if strings.EqualFold(h.Name, name) {
			found, n = h.Value, n+1
		}
	}
	if n != 1 {
		return ""
	}
	return found
}

// about returns what the headers say.
func (g *gmailMessage) about() message {
	return message{
		ID: g.ID, Thread: g.Thread, Labels: g.Labels, Snippet: html.UnescapeString(g.Snippet),
		// Decoded, a name may look like somebody else's address.
		From: g.Payload.header("From"), Sender: senderIn(g.Payload.rawHeader("From")),
		To: g.Payload.header("To"), Cc: g.Payload.header("Cc"),
		Subject: g.Payload.header("Subject"), Date: g.Payload.header("Date"),
	}
}

// messageHeaders asks for no more of a message than its headers.
func messageHeaders(more ...string) url.Values {
	names := append([]string{"From", "To", "Cc", "Subject", "Date"}, more...)
	return url.Values{"format": {"metadata"}, "metadataHeaders": names}
}

// message fetches one.
func (a *api) message(ctx context.Context, id string, q url.Values) (*gmailMessage, error) {
	found := &gmailMessage{}
	_, err := a.json(ctx, request{method: http.MethodGet, path: mailPath + "/" + url.PathEscape(id), query: q}, nil, found)
	return found, err
}

func (a *api) senderOf(ctx context.Context, id string) ([]Resource, error) {
	found, err := a.message(ctx, id, messageHeaders())
	if err != nil {
		return nil, err
	}
	m := found.about()
	return []Resource{{KindSender, m.Sender}}, nil
}

func lookupSender(ctx context.Context, a *api, args *messageID) ([]Resource, error) {
	return a.senderOf(ctx, args.Message)
}

type searchMailArgs struct {
	Query      string   `json:"query,omitempty"` // as in Gmail's search box
	Labels     []string `json:"label_ids,omitempty"`
	MaxResults int      `json:"max_results,omitempty"`
	PageToken  string   `json:"page_token,omitempty"`
}

func (s *searchMailArgs) check() error {
	return firstError(checkText("query", s.Query, 1024), checkNames("label_ids", s.Labels),
		checkCount("max_results", s.MaxResults, maxFound), checkText("page_token", s.PageToken, 256))
}

// searchMail tells of each message found what its headers say. Gmail lists no
// more than ids, so each is fetched; one that is gone by then is left out.
func searchMail(ctx context.Context, a *api, args *searchMailArgs) (*messages, error) {
	q := url.Values{"maxResults": {strconv.Itoa(or(args.MaxResults, 10))}}
	setUnlessEmpty(q, "q", args.Query)
	setUnlessEmpty(q, "pageToken", args.PageToken)
	if len(args.Labels) > 0 {
		q["labelIds"] = args.Labels
	}
	var list struct {
		Messages []struct {
			ID string `json:"id"`
		} `json:"messages"`
		NextPage string `json:"nextPageToken"`
		Estimate *int   `json:"resultSizeEstimate"`
	}
	if _, err := a.json(ctx, request{method: http.MethodGet, path: mailPath, query: q}, nil, &list); err != nil {
		return nil, err
	}
	if len(list.Messages) > maxFound {
		return nil, failed("the provider's answer is not what it should be")
	}
	found := make([]message, len(list.Messages))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mailAtOnce)
	for i, m := range list.Messages {
		group.Go(func() error {
			one, err := a.message(ctx, m.ID, messageHeaders())
			if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound {
				return nil
			}
			if err == nil {
				found[i] = one.about()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	withhold(&found, func(m message) bool { return m.ID != "" })
	return &messages{found, list.Estimate, list.NextPage}, nil
}

type messageID struct {
	Message string `json:"message_id"`
}

func (m *messageID) check() error { return checkID("message_id", m.Message) }

func (m *messageID) path(verb string) string { return mailPath + "/" + m.Message + verb }

func getMail(ctx context.Context, a *api, args *messageID) (*message, error) {
	found, err := a.message(ctx, args.Message, url.Values{"format": {"full"}})
	if err != nil {
		return nil, err
	}
	m := found.about()
	read(&found.Payload, &m, 0)
	if len(m.Body) > maxMailBody {
		m.Body, m.Cut = strings.ToValidUTF8(m.Body[:maxMailBody], ""), true
	}
	return &m, nil
}

// labels is what messages.modify takes.
type labelChange struct {
	Add    []string `json:"addLabelIds,omitempty"`
	Remove []string `json:"removeLabelIds,omitempty"`
}

// changed tells how a message stands after a change.
func (a *api) change(ctx context.Context, path string, body any) (*message, error) {
	var now gmailMessage
	if _, err := a.json(ctx, request{method: http.MethodPost, path: path}, body, &now); err != nil {
		return nil, err
	}
	return &message{ID: now.ID, Thread: now.Thread, Labels: now.Labels}, nil
}

func archiveMail(ctx context.Context, a *api, args *messageID) (*message, error) {
	return a.change(ctx, args.path("/modify"), labelChange{Remove: []string{"INBOX"}})
}

func trashMail(ctx context.Context, a *api, args *messageID) (*message, error) {
	return a.change(ctx, args.path("/trash"), nil)
}

type markReadArgs struct {
	messageID
	Read *bool `json:"read,omitempty"` // absent: true
}

func markRead(ctx context.Context, a *api, args *markReadArgs) (*message, error) {
	change := labelChange{Remove: []string{"UNREAD"}}
	if args.Read != nil && !*args.Read {
		change = labelChange{Add: []string{"UNREAD"}}
	}
	return a.change(ctx, args.path("/modify"), change)
}

type sendArgs struct {
	To      []string `json:"to"`
	Cc      []string `json:"cc,omitempty"`
	Bcc     []string `json:"bcc,omitempty"`
	Subject string   `json:"subject,omitempty"` // of an answer: "Re: " and what it answers
	Body    string   `json:"body"`
	ReplyTo string   `json:"reply_to_message_id,omitempty"`
}

func (s *sendArgs) check() error {
	if s.ReplyTo != "" {
		if err := checkID("reply_to_message_id", s.ReplyTo); err != nil {
			return err
		}
	} else if err := checkLine("subject", s.Subject, 1024); err != nil {
		return err
	}
	if len(s.To) == 0 {
		return invalid("to is missing")
	}
	if strings.ContainsAny(s.Subject, "\r\n\x00") {
		return invalid("subject is more than one line")
	}
	if n := len(s.To) + len(s.Cc) + len(s.Bcc); n > maxRecipients {
		return invalid("more than %d recipients", maxRecipients)
	}
	for _, list := range [][]string{s.To, s.Cc, s.Bcc} {
		for _, who := range list {
			if _, err := mail.ParseAddress(who); err != nil {
				return invalid("%q is not an address", words(who))
			}
		}
	}
	return firstError(checkText("subject", s.Subject, 1024), checkText("body", s.Body, maxMailBody))
}

func (s *sendArgs) resources() []Resource {
	var touched []Resource
	for _, list := range [][]string{s.To, s.Cc, s.Bcc} {
		for _, who := range list {
			if addr, err := mail.ParseAddress(who); err == nil {
				touched = append(touched, Resource{KindRecipient, lower(addr.Address)})
			}
		}
	}
	return touched
}

func sendMail(ctx context.Context, a *api, args *sendArgs) (*message, error) {
	var answered gmailMessage
	if args.ReplyTo != "" {
		found, err := a.message(ctx, args.ReplyTo, messageHeaders("Message-ID", "References"))
		if err != nil {
			return nil, err
		}
		answered = *found
	}
	body := struct {
		Raw    string `json:"raw"`
		Thread string `json:"threadId,omitempty"`
	}{base64.URLEncoding.EncodeToString(compose(args, &answered.Payload)), answered.Thread}
	return a.change(ctx, mailPath+"/send", body)
}
