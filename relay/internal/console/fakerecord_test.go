package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

type fakeRecording struct {
	info protocol.RecordingInfo
	cast string
}

// readLog answers GET …/log.
func (f *fakeRelay) readLog(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	p := f.pty(r.PathValue("pid"))
	from, err := protocol.ParsePosition(r.URL.Query().Get("from"))
	to, errTo := strconv.Atoi(r.URL.Query().Get("to"))
	if p == nil || err != nil || errTo != nil || from.Epoch != p.epoch {
		f.fault("GET log?%s", r.URL.RawQuery)
		refuse(w, protocol.KindInvalid)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Fairlead-Position", from.String())
	w.Write(p.log[from.Offset:to])
}

// record answers POST and DELETE …/recording.
func (f *fakeRelay) record(w http.ResponseWriter, r *http.Request) {
	u, ok := f.user(w, r, true)
	if !ok {
		return
	}
	if r.Header.Get("Idempotency-Key") == "" || u.id != "usr_alice" {
		f.fault("%s recording by %s", r.Method, u.id)
	}
	p := f.pty(r.PathValue("pid"))
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodPost {
		f.addRecording(p, time.Now(), fmt.Sprintf("[0.1,\"o\",%q]\n", "recorded \ue0b0\u25e2")) // two that the player draws as SVG
		p.recording = f.recordings[len(f.recordings)-1].info.ID
	} else {
		f.recordings[len(f.recordings)-1].info.EndedAt = time.Now().UnixMilli()
		p.recording = ""
	}
	p.broadcast(protocol.RecordingState{ID: p.recording})
	answer(w, 200, map[string]any{"recordingId": p.recording})
}

// share answers POST …/share.
func (f *fakeRelay) share(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	var body protocol.Shared
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Idempotency-Key") == "" {
		f.fault("share: %v", err)
	}
	p := f.pty(r.PathValue("pid"))
	f.mu.Lock()
	defer f.mu.Unlock()
	p.shared = body.With
	p.broadcast(protocol.SharedMessage(body))
	answer(w, 200, body)
}

// addRecording adds one that still runs. It is called with mu held.
func (f *fakeRelay) addRecording(p *fakePTY, started time.Time, events string) {
	cast := fmt.Sprintf("{\"version\":2,\"width\":%d,\"height\":%d}\n%s", p.info.Cols, p.info.Rows, events)
	f.recordings = append(f.recordings, fakeRecording{
		info: protocol.RecordingInfo{
			ID: "rec_" + strconv.Itoa(len(f.recordings)+1), PTYID: p.info.ID, Command: p.info.Command,
			Cols: p.info.Cols, Rows: p.info.Rows, StartedAt: started.UnixMilli(), Bytes: int64(len(cast)),
		},
		cast: cast,
	})
}

func (f *fakeRelay) listRecordings(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	list := protocol.RecordingList{Recordings: []protocol.RecordingInfo{}}
	for _, recording := range f.recordings {
		list.Recordings = append(list.Recordings, recording.info)
	}
	answer(w, 200, list)
}

func (f *fakeRelay) recording(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, recording := range f.recordings {
		if recording.info.ID == r.PathValue("rid") {
			w.Header().Set("Content-Type", "application/x-asciicast")
			_, _ = strings.NewReader(recording.cast).WriteTo(w) // the browser's loss
			return
		}
	}
	refuse(w, protocol.KindNotFound)
}
