package chatlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Has reports whether the log has the message that a command has brought. known is
// false if that can't be told: it isn't there, and what the log has goes back no
// further than to when the command was issued.
func (l *Log) Has(command protocol.CommandID, issued time.Time) (has, known bool) {
	reader, at := l.Read(0, l.Position().Last)
	defer reader.Close()
	whole := at.First <= 1
	for first := true; ; first = false {
		entry, err := reader.Next()
		if err != nil {
			return false, whole && errors.Is(err, io.EOF)
		}
		var e protocol.ChatEvent
		if first && !whole && json.Unmarshal(entry.JSON, &e) == nil {
			began, err := time.Parse(time.RFC3339Nano, e.Timestamp)
			whole = err == nil && began.Before(issued.Add(-protocol.ClockSkew))
		}
		if tells(entry.JSON) && bytes.Contains(entry.JSON, []byte(command)) &&
			json.Unmarshal(entry.JSON, &e) == nil && e.CommandID == command {
			return true, true
		}
	}
}
