package bridge

import (
	"context"
	"encoding/json"
	"strconv"
)

// A question is a request of the server's to the program that has no answer yet.
type question struct {
	session *session
	id      json.RawMessage // as the server knows it
	told    json.RawMessage // as the program does
}

// ask passes on a request of the server's in s. A server that was restarted uses
// its ids again: an answer to an earlier one must not be taken for the new one's,
// which therefore gets another id for the program.
func (b *bridge) ask(ctx context.Context, s *session, m *message) {
	q := question{session: s, id: m.rawID, told: m.rawID}
	b.mu.Lock()
	if of, taken := b.asked[m.id]; taken && of.session != s {
		b.renamed++
		q.told = json.RawMessage(strconv.Quote("bridge-" + strconv.FormatUint(b.renamed, 10)))
	}
	full := len(b.asked) >= b.limits.asked
	if !full {
		b.asked[spell(q.told)] = q
	}
	b.mu.Unlock()
	if !full {
		b.write(withMember(m.raw, "id", q.told))
		return
	}
	b.log.Warn("a request of the server was refused", "method", m.method)
	refuse := &message{raw: failure(m.rawID, codeFailed, "too many requests wait for the program's answers")}
	if err := b.post(ctx, s, refuse); err != nil {
		b.log.Debug("a refusal was dropped", "err", err)
	}
}

// withdraw passes on that the server wants no answer to a request any more.
func (b *bridge) withdraw(s *session, m *message) {
	id := spell(m.member("requestId"))
	raw := m.raw
	b.mu.Lock()
	for told, q := range b.asked {
		if q.session == s && spell(q.id) == id {
			delete(b.asked, told)
			raw = withMember(raw, "params", withMember(m.params, "requestId", q.told))
		}
	}
	b.mu.Unlock()
	b.write(raw)
}

// reply passes on the program's answers to requests of the server, if that is
// still the one that asked.
func (b *bridge) reply(ctx context.Context, m *message) {
	for _, one := range m.parts() {
		b.mu.Lock()
		q, ok := b.asked[one.id]
		delete(b.asked, one.id)
		b.mu.Unlock()
		if !ok || q.session.isLost() {
			b.log.Debug("an answer to no request was dropped")
			continue
		}
		if err := b.post(ctx, q.session, &message{raw: withMember(one.raw, "id", q.id)}); err != nil {
			b.log.Debug("an answer was dropped", "err", err)
		}
	}
}

// void forgets the requests of an earlier session and returns how the program
// knows those of old. These are kept until the next session, so that their ids
// aren't used again. b.mu is held.
func (b *bridge) void(old *session) []json.RawMessage {
	var list []json.RawMessage
	for told, q := range b.asked {
		if q.session == old {
			list = append(list, q.told)
		} else {
			delete(b.asked, told)
		}
	}
	return list
}

// withMember returns the object raw with another value of a member.
func withMember(raw []byte, name string, value json.RawMessage) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || string(members[name]) == string(value) {
		return raw
	}
	members[name] = value
	text, err := json.Marshal(members)
	if err != nil {
		return raw // its parts were parsed
	}
	return text
}
