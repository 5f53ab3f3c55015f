package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
)

func TestKindsAreOrderedAndComplete(t *testing.T) {
	if len(Kinds) != int(kindCount) {
		t.Fatalf("%d rows for %d kinds", len(Kinds), kindCount)
	}
	labels := map[string]bool{}
	for i, row := range Kinds {
		if row.Kind != Kind(i) {
			t.Errorf("row %d is kind %d", i, row.Kind)
		}
		if labels[row.Label] || row.Label == "" || row.Text == "" {
			t.Errorf("row %d: label %q, text %q", i, row.Label, row.Text)
		}
		labels[row.Label] = true
		if http.StatusText(row.Status) == "" || row.Status < 400 {
			t.Errorf("%s: status %d", row.Label, row.Status)
		}
		if (row.Close < 1009 || row.Close > 1013) && (row.Close < 4000 || row.Close > 4999) {
			t.Errorf("%s: close code %d", row.Label, row.Close)
		}
		k := row.Kind
		if k.String() != row.Label || k.Status() != row.Status || k.CloseCode() != row.Close || k.Name() != row.Name || k.Text() != row.Text {
			t.Errorf("%s: the methods say otherwise", row.Label)
		}
	}
	if unknown := Kind(200); unknown.String() != "internal" || unknown.Status() != 500 {
		t.Errorf("kind 200 is %s", unknown)
	}
}

func TestKindText(t *testing.T) {
	for _, row := range Kinds {
		text, err := json.Marshal(row.Kind)
		var back Kind
		if err != nil || json.Unmarshal(text, &back) != nil || back != row.Kind {
			t.Errorf("%s: %s, %v, back %s", row.Label, text, err, back)
		}
	}
	kind := KindForbidden
	if err := json.Unmarshal([]byte(`"of_a_newer_peer"`), &kind); err != nil || kind != KindInternal {
		t.Errorf("unknown label: %s, %v", kind, err)
	}
}

func TestKindByName(t *testing.T) {
	for _, row := range Kinds {
		if got := KindByName(row.Name); got.Name() != row.Name {
			t.Errorf("%s: %s has another name", row.Name, got)
		}
	}
	if KindByName("") != KindInternal {
		t.Error("no name")
	}
}

func TestKindByStatus(t *testing.T) {
	for _, row := range Kinds {
		if got := KindByStatus(row.Status); got.Status() != row.Status || got > row.Kind {
			t.Errorf("%d is %s", row.Status, got)
		}
	}
	if KindByStatus(http.StatusTeapot) != KindInternal || KindByStatus(0) != KindInternal {
		t.Error("another status has a kind")
	}
}

func TestErrors(t *testing.T) {
	wrapped := Errorf(KindNotFound, "pty %s: %w", "pty_1", io.EOF)
	if wrapped.Error() != "pty pty_1: EOF" || !errors.Is(wrapped, io.EOF) {
		t.Errorf("%v", wrapped)
	}
	secret := errors.New("password")
	fault := Fault(KindUpstream, secret)
	if fault.Error() != "upstream failed" || !errors.Is(fault, secret) || fault.Body() != (ErrorBody{"upstream failed", "InternalError"}) {
		t.Errorf("%v, %v", fault, fault.Body())
	}
	if (&Error{Kind: KindEnded}).Error() != "session ended" {
		t.Error("an Error without a message has no text")
	}
	if AsError(nil) != nil {
		t.Error("nil became an error")
	}
	if got := AsError(fmt.Errorf("outer: %w", wrapped)); got != wrapped {
		t.Errorf("AsError: %v", got)
	}
	if got := AsError(secret); got.Kind != KindInternal || got.Error() != "internal error" || !errors.Is(got, secret) {
		t.Errorf("AsError of a plain error: %v", got)
	}
	if KindOf(wrapped) != KindNotFound || KindOf(secret) != KindInternal {
		t.Error("KindOf")
	}
	if got := (Refused{KindTooMany, "slowly"}).Err(); got.Kind != KindTooMany || got.Error() != "slowly" {
		t.Errorf("%v", got)
	}
}

func TestCapabilities(t *testing.T) {
	for _, c := range Capabilities {
		if !c.Known() {
			t.Errorf("%s", c)
		}
	}
	if Capability("").Known() || Capability("View").Known() {
		t.Error("something else is known, too")
	}
}
