package provider

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"slices"
	"strings"
	"testing"
)

const (
	mailRoot     = "/gmail/v1/users/me/messages"
	mailMetadata = "?format=metadata&metadataHeaders=Cc&metadataHeaders=Date&metadataHeaders=From&metadataHeaders=Subject&metadataHeaders=To"
)

func gmailUpstream(t *testing.T) *upstream {
	u := newUpstream(t)
	u.on("GET "+mailRoot, 200, recorded(t, "gmail_list.json"))
	u.on("GET "+mailRoot+"/18c1a2b3c4d5e6f7", 200, recorded(t, "gmail_metadata.json"))
	u.on("GET "+mailRoot+"/18c1a2b3c4d5e6f8", 200, recorded(t, "gmail_metadata2.json"))
	u.on("GET "+mailRoot+"/18c1a2b3c4d5gone", 404, `{"error":{"code":404,"message":"Requested entity was not found.","errors":[{"message":"Requested entity was not found.","domain":"global","reason":"notFound"}],"status":"NOT_FOUND"}}`)
	return u
}

func TestGmailSearch(t *testing.T) {
	u := gmailUpstream(t)
	answer := u.do("gmail.search", `{"query":"is:unread from:ann","label_ids":["INBOX","UNREAD"],"max_results":3,"page_token":"012"}`)
	sameJSON(t, "search", answer, `{
		"messages":[
			{"id":"18c1a2b3c4d5e6f7","thread_id":"18c1a2b3c4d5e6f0","from":"Müller, Ann <Ann@Example.com>","from_address":"ann@example.com",
			 "to":"Bob <bob@example.org>, carol@example.org","subject":"Zahlen für Mai 🚀","date":"Fri, 20 Nov 2026 10:00:00 +0100",
			 "labels":["UNREAD","CATEGORY_PERSONAL","INBOX"],"snippet":"Hi Bob, the figures are in & checked."},
			{"id":"18c1a2b3c4d5e6f8","thread_id":"18c1a2b3c4d5e6f8","from":"\"ann@example.com\" <billing@evil.example>","from_address":"billing@evil.example",
			 "to":"bob@example.org","subject":"Invoice","date":"Fri, 20 Nov 2026 09:00:00 +0000","labels":["INBOX"],"snippet":"Your invoice"}],
		"estimated_total":201,"next_page_token":"09876543210987654321"}`)
	lines := u.lines()
	slices.Sort(lines)
	want := []string{
		"GET " + mailRoot + "/18c1a2b3c4d5e6f7" + mailMetadata, "GET " + mailRoot + "/18c1a2b3c4d5e6f8" + mailMetadata,
		"GET " + mailRoot + "/18c1a2b3c4d5gone" + mailMetadata,
		"GET " + mailRoot + "?labelIds=INBOX&labelIds=UNREAD&maxResults=3&pageToken=012&q=is:unread from:ann",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("asked %q", lines)
	}

	rest, n, err := Filter(Gmail, "gmail.search", answer, func(kind, value string) bool {
		return kind == KindSender && value == "ann@example.com"
	})
	if err != nil || n != 1 || strings.Contains(string(rest), "evil") || strings.Contains(string(rest), "201") || !strings.Contains(string(rest), "18c1a2b3c4d5e6f7") {
		t.Errorf("%s, %d, %v", rest, n, err)
	}

	u.on("GET "+mailRoot, 200, `{"resultSizeEstimate":0}`) // as Gmail has it when nothing is found
	u.want("gmail.search", ``, `{"messages":[],"estimated_total":0}`)
	u.asked("GET " + mailRoot + "?maxResults=10")
}

func TestGmailGet(t *testing.T) {
	u := newUpstream(t)
	u.on("GET "+mailRoot+"/m1", 200, recorded(t, "gmail_full.json"))
	answer := u.do("gmail.get", `{"message_id":"m1"}`)
	sameJSON(t, "get", answer, `{"id":"18c1a2b3c4d5e6f7","thread_id":"18c1a2b3c4d5e6f0","from":"ann@example.com","from_address":"ann@example.com",
		"to":"bob@example.org","cc":"carol@example.org","subject":"Figures","date":"Fri, 20 Nov 2026 10:00:00 +0100","labels":["INBOX"],"snippet":"Grüße",
		"body":"Grüße\n","body_type":"text/plain","attachments":[{"name":"figures.pdf","mime_type":"application/pdf","size":10240}]}`)
	u.asked("GET " + mailRoot + "/m1?format=full")
	rest, n, err := Filter(Gmail, "gmail.get", answer, func(string, string) bool { return false })
	if err != nil || n != 1 || string(rest) != "{}" {
		t.Errorf("%s, %d, %v", rest, n, err)
	}
}

// TestGmailSender: by whom a message is, is what its From header says as it was
// sent, or nothing.
func TestGmailSender(t *testing.T) {
	for _, test := range []struct{ headers, want string }{
		{`{"name":"From","value":"Ann <ANN@example.com>"}`, "ann@example.com"},
		{`{"name":"From","value":"=?utf-8?q?boss=40example=2Ecom?= <x@evil.example>"}`, "x@evil.example"},
		{`{"name":"From","value":"boss@example.com, x@evil.example"}`, ""},
		{`{"name":"From","value":"boss@example.com"},{"name":"from","value":"x@evil.example"}`, ""},
		{`{"name":"From","value":"boss@example.com <x@evil.example"}`, ""},
		{`{"name":"Sender","value":"boss@example.com"}`, ""},
	} {
		var part gmailPart
		if err := json.Unmarshal([]byte(`{"headers":[`+test.headers+`]}`), &part); err != nil {
			t.Fatal(err)
		}
		if got := senderIn(part.rawHeader("From")); got != test.want {
			t.Errorf("%s: %q, want %q", test.headers, got, test.want)
		}
	}
}

// raw returns the message that was sent, and the rest of the request.
func raw(t *testing.T, body string) (*mail.Message, string, string) {
	t.Helper()
	var sent struct {
		Raw    string `json:"raw"`
		Thread string `json:"threadId"`
	}
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	data, err := base64.URLEncoding.DecodeString(sent.Raw)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\r\n") {
		if len(line) > 998 || strings.ContainsAny(line, "\r\n") {
			t.Errorf("line %q", line)
		}
	}
	msg, err := mail.ReadMessage(strings.NewReader(string(data)))
	if err != nil {
		t.Fatalf("%v:\n%s", err, data)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	if err != nil {
		t.Fatal(err)
	}
	return msg, string(text), sent.Thread
}

func TestGmailSend(t *testing.T) {
	u := newUpstream(t)
	u.on("POST "+mailRoot+"/send", 200, `{"id":"18c2","threadId":"18c2","labelIds":["SENT"]}`)
	subject := "Zahlen für Mai: " + strings.Repeat("ä ", 100)
	args, _ := json.Marshal(map[string]any{
		"to": []string{"Ann Müller <ann@example.com>", "bob@example.org"}, "bcc": []string{"carol@example.org"},
		"subject": subject, "body": "Hallo,\n.\nGrüße " + strings.Repeat("x", 2000) + "\r\nEnde",
	})
	u.want("gmail.send", string(args), `{"id":"18c2","thread_id":"18c2","labels":["SENT"]}`)
	requests := u.take()
	msg, text, thread := raw(t, requests[0].body)
	to, err := msg.Header.AddressList("To")
	if err != nil || len(to) != 2 || *to[0] != (mail.Address{Name: "Ann Müller", Address: "ann@example.com"}) || to[1].Address != "bob@example.org" {
		t.Errorf("to %v, %v", to, err)
	}
	decoded, err := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject"))
	if err != nil || decoded != subject || msg.Header.Get("Bcc") != "<carol@example.org>" || thread != "" {
		t.Errorf("%q, %v; %v", decoded, err, msg.Header)
	}
	if want := "Hallo,\r\n.\r\nGrüße " + strings.Repeat("x", 2000) + "\r\nEnde"; text != want {
		t.Errorf("body %q", text)
	}
	if requests[0].header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", requests[0].header)
	}
	touched, err := Resources(Gmail, "gmail.send", args)
	if err != nil || !slices.Equal(touched, []Resource{{KindRecipient, "ann@example.com"}, {KindRecipient, "bob@example.org"}, {KindRecipient, "carol@example.org"}}) {
		t.Errorf("%v, %v", touched, err)
	}
	if touched, err := Lookup(t.Context(), u.call("gmail.send", string(args))); err != nil || touched != nil {
		t.Errorf("%v, %v", touched, err)
	}
}

func TestGmailAnswer(t *testing.T) {
	u := newUpstream(t)
	u.on("GET "+mailRoot+"/m1", 200, recorded(t, "gmail_full.json"))
	u.on("POST "+mailRoot+"/send", 200, `{"id":"18c3","threadId":"18c1a2b3c4d5e6f0","labelIds":["SENT"]}`)
	const args = `{"to":["ann@example.com"],"body":"yes","reply_to_message_id":"m1"}`
	u.do("gmail.send", args)
	requests := u.take()
	if len(requests) != 2 || !strings.Contains(requests[0].line, "metadataHeaders=Message-ID&metadataHeaders=References") {
		t.Fatalf("%v", requests)
	}
	msg, _, thread := raw(t, requests[1].body)
	if thread != "18c1a2b3c4d5e6f0" || msg.Header.Get("Subject") != "Re: Figures" || msg.Header.Get("In-Reply-To") != "<CAF1@mail.example.com>" ||
		msg.Header.Get("References") != "<CAF0@mail.example.com> <CAF1@mail.example.com>" {
		t.Errorf("%q, %v", thread, msg.Header)
	}
	touched, err := Lookup(t.Context(), u.call("gmail.send", args))
	if err != nil || !slices.Equal(touched, []Resource{{KindSender, "ann@example.com"}}) {
		t.Errorf("%v, %v", touched, err)
	}
}

// TestGmailHeaders: nothing that is sent gets a header of its own, be it from
// arguments or from a message that is answered.
func TestGmailHeaders(t *testing.T) {
	u := newUpstream(t)
	for _, args := range []string{
		`{"to":["a@b.c\r\nBcc: x@evil.example"],"subject":"s","body":""}`,
		`{"to":["a@b.c"],"subject":"s\r\nBcc: x@evil.example","body":""}`,
		`{"to":["a@b.c"],"subject":"s\nBcc: x@evil.example","body":"","reply_to_message_id":"m1"}`,
		`{"to":["a@b.c, x@evil.example"],"subject":"s","body":""}`,
		`{"to":[],"subject":"s","body":""}`, `{"to":["a@b.c"],"body":""}`, `{"to":["nobody"],"subject":"s","body":""}`,
		`{"to":["a@b.c"],"subject":"s","body":"","reply_to_message_id":"../../drafts"}`,
	} {
		if e := u.refused("gmail.send", args); e.Code != CodeInvalid {
			t.Errorf("%s: %+v", args, e)
		}
	}
	u.asked()
	u.on("GET "+mailRoot+"/m1", 200, `{"id":"m1","threadId":"t","payload":{"headers":[
		{"name":"Subject","value":"s\r\nBcc: x@evil.example"},{"name":"Message-ID","value":"<a@b>\r\nBcc: x@evil.example"},{"name":"References","value":"<c\r\nBcc:d> <e@f>"}]}}`)
	u.on("POST "+mailRoot+"/send", 200, `{"id":"m2"}`)
	u.do("gmail.send", `{"to":["a@b.c"],"body":"b","reply_to_message_id":"m1"}`)
	msg, _, _ := raw(t, u.take()[1].body)
	if len(msg.Header["Bcc"]) != 0 || msg.Header.Get("References") != "<e@f> <a@b>" {
		t.Errorf("%v", msg.Header)
	}
}

func TestGmailChanges(t *testing.T) {
	u := newUpstream(t)
	u.on("POST "+mailRoot+"/m1/modify", 200, `{"id":"m1","threadId":"t1","labelIds":["UNREAD"]}`)
	u.on("POST "+mailRoot+"/m1/trash", 200, `{"id":"m1","threadId":"t1","labelIds":["TRASH"]}`)
	for _, test := range []struct{ action, args, line, body string }{
		{"gmail.archive", `{"message_id":"m1"}`, "/m1/modify", `{"removeLabelIds":["INBOX"]}`},
		{"gmail.trash", `{"message_id":"m1"}`, "/m1/trash", ``},
		{"gmail.mark_read", `{"message_id":"m1"}`, "/m1/modify", `{"removeLabelIds":["UNREAD"]}`},
		{"gmail.mark_read", `{"message_id":"m1","read":true}`, "/m1/modify", `{"removeLabelIds":["UNREAD"]}`},
		{"gmail.mark_read", `{"message_id":"m1","read":false}`, "/m1/modify", `{"addLabelIds":["UNREAD"]}`},
	} {
		answer := u.do(test.action, test.args)
		if sent := u.take(); len(sent) != 1 || sent[0].line != "POST "+mailRoot+test.line || sent[0].body != test.body || !strings.Contains(string(answer), `"thread_id":"t1"`) {
			t.Errorf("%s: %+v, %s", test.action, sent, answer)
		}
	}
	u.on("GET "+mailRoot+"/m1", 200, recorded(t, "gmail_metadata2.json"))
	for _, action := range []string{"gmail.archive", "gmail.trash", "gmail.mark_read"} {
		touched, err := Lookup(t.Context(), u.call(action, `{"message_id":"m1"}`))
		if err != nil || !slices.Equal(touched, []Resource{{KindSender, "billing@evil.example"}}) {
			t.Errorf("%s: %v, %v", action, touched, err)
		}
	}
}
