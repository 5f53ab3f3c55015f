package provider

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// maxParts bounds how deep the parts of a message are looked at.
const maxParts = 32

// read takes from a part and those in it the text that is the message's own, of
// several forms of it the plain one, and what is attached.
func read(p *gmailPart, m *message, depth int) {
	switch {
	case depth > maxParts:
	case strings.HasPrefix(p.MIMEType, "multipart/"):
		for i := range p.Parts {
			read(&p.Parts[i], m, depth+1)
		}
	case p.Filename != "" || p.Body.Attachment != "" || strings.HasPrefix(p.MIMEType, "message/"):
		m.Attachments = append(m.Attachments, attachment{p.Filename, p.MIMEType, p.Body.Size})
	case p.MIMEType == "text/plain" || p.MIMEType == "text/html":
		text := partText(p)
		switch {
		case m.BodyType == "" || m.BodyType == "text/html" && p.MIMEType == "text/plain":
			m.Body, m.BodyType = text, p.MIMEType
		case m.BodyType == p.MIMEType:
			m.Body += "\n" + text
		}
	}
}

// partText returns a part's text. Gmail decodes what a message was encoded by on
// its way, but leaves its character set.
func partText(p *gmailPart) string {
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(p.Body.Data, "="))
	if err != nil {
		return ""
	}
	if utf8.Valid(data) {
		return string(data)
	}
	_, params, _ := mime.ParseMediaType(p.rawHeader("Content-Type"))
	if r, err := charset.NewReaderLabel(or(params["charset"], "windows-1252"), bytes.NewReader(data)); err == nil {
		if text, err := io.ReadAll(r); err == nil {
			return strings.ToValidUTF8(string(text), "\uFFFD")
		}
	}
	return strings.ToValidUTF8(string(data), "\uFFFD")
}

// messageIDForm is how a message is referred to in another.
var messageIDForm = regexp.MustCompile(`<[^<>\s]{1,250}>`)

// compose returns a message as RFC 2822 has it, an answer to the one whose
// headers answered has, if any. Who sends it and when, Gmail adds.
func compose(s *sendArgs, answered *gmailPart) []byte {
	var msg bytes.Buffer
	for _, list := range []struct {
		name string
		who  []string
	}{{"To", s.To}, {"Cc", s.Cc}, {"Bcc", s.Bcc}} {
		if len(list.who) > 0 {
			fmt.Fprintf(&msg, "%s: %s\r\n", list.name, addresses(list.who))
		}
	}
	subject := s.Subject
	if subject == "" {
		subject = answered.header("Subject")
		if len(subject) < 3 || !strings.EqualFold(subject[:3], "re:") {
			subject = "Re: " + subject
		}
	}
	fmt.Fprintf(&msg, "Subject: %s\r\n", encodedLine(subject))
	if id := messageIDForm.FindString(answered.rawHeader("Message-ID")); id != "" {
		before := messageIDForm.FindAllString(answered.rawHeader("References"), -1)
		if len(before) > 20 {
			before = before[len(before)-20:]
		}
		fmt.Fprintf(&msg, "In-Reply-To: %s\r\n", id)
		fmt.Fprintf(&msg, "References: %s\r\n", strings.Join(append(before, id), "\r\n "))
	}
	msg.WriteString("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n")
	body := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n").Replace(s.Body)
	w := quotedprintable.NewWriter(&msg)
	_, _ = io.WriteString(w, body) // into memory
	_ = w.Close()
	return msg.Bytes()
}

// addresses returns people as a header names them, a line for each.
func addresses(who []string) string {
	var list []string
	for _, one := range who {
		if addr, err := mail.ParseAddress(one); err == nil {
			list = append(list, addr.String())
		}
	}
	return strings.Join(list, ",\r\n ")
}

// encodedLine returns text for a header: encoded words where it isn't ASCII,
// each on a line of its own.
func encodedLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return strings.ReplaceAll(mime.QEncoding.Encode("utf-8", text), "?= =?", "?=\r\n =?")
}
