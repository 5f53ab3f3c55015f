package provider

import (
	"slices"
	"testing"
)

const primary = "/calendar/v3/calendars/primary/events"

func TestCalendarList(t *testing.T) {
	u := newUpstream(t)
	u.on("GET "+primary, 200, recorded(t, "calendar_list.json"))
	const want = `{"items":[
		{"id":"abc123_20261123T090000Z","status":"confirmed","summary":"Stand-up","start":{"dateTime":"2026-11-23T10:00:00+01:00","timeZone":"Europe/Berlin"},
		 "end":{"dateTime":"2026-11-23T10:15:00+01:00","timeZone":"Europe/Berlin"},"attendees":[{"email":"bob@example.org","displayName":"Bob","responseStatus":"accepted"}],
		 "organizer":{"email":"ann@example.com"},"htmlLink":"https://www.google.com/calendar/event?eid=YWJj","recurringEventId":"abc123","updated":"2026-10-02T08:00:00.000Z"},
		{"id":"day1","status":"confirmed","summary":"Holiday","start":{"date":"2026-12-24"},"end":{"date":"2026-12-25"}}],
		"timeZone":"Europe/Berlin","nextPageToken":"EjYKK2"}`
	u.want("google_calendar.list_events", `{"time_min":"2026-11-21T00:00:00+01:00","time_max":"2026-12-31T00:00:00Z","max_results":2,"page_token":"x"}`, want)
	u.asked("GET " + primary + "?maxResults=2&orderBy=startTime&pageToken=x&singleEvents=true&timeMax=2026-12-31T00:00:00Z&timeMin=2026-11-21T00:00:00+01:00")
	u.want("google_calendar.search_events", `{"query":"stand up"}`, want)
	u.asked("GET " + primary + "?maxResults=25&orderBy=startTime&q=stand up&singleEvents=true")

	u.on("GET /calendar/v3/calendars/en.german%23holiday@group.v.calendar.google.com/events", 200, `{"kind":"calendar#events"}`)
	u.want("google_calendar.list_events", `{"calendar_id":"en.german#holiday@group.v.calendar.google.com"}`, `{"items":[]}`)
	u.take()
	touched, err := Resources(GoogleCalendar, "google_calendar.get_event", []byte(`{"calendar_id":"a@b.c","event_id":"e"}`))
	if err != nil || !slices.Equal(touched, []Resource{{KindCalendar, "a@b.c"}}) {
		t.Errorf("%v, %v", touched, err)
	}
	for _, args := range []string{
		`{"calendar_id":".."}`, `{"calendar_id":"../users/me"}`, `{"calendar_id":"a b"}`, `{"time_min":"2026-11-21"}`, `{"time_max":"tomorrow"}`, `{"max_results":251}`, `{"max_results":-1}`,
	} {
		if e := u.refused("google_calendar.list_events", args); e.Code != CodeInvalid {
			t.Errorf("%s: %+v", args, e)
		}
	}
	u.asked()
}

func TestCalendarWrite(t *testing.T) {
	u := newUpstream(t)
	u.on("POST "+primary, 200, `{"kind":"calendar#event","id":"e1","status":"confirmed","summary":"s"}`)
	u.on("GET "+primary+"/e1", 200, `{"kind":"calendar#event","id":"e1","recurrence":["RRULE:FREQ=WEEKLY"]}`)
	u.on("PATCH "+primary+"/e1", 200, `{"kind":"calendar#event","id":"e1"}`)
	u.on("DELETE "+primary+"/e1", 204, ``)
	u.want("google_calendar.get_event", `{"event_id":"e1"}`, `{"id":"e1","recurrence":["RRULE:FREQ=WEEKLY"]}`)
	u.take()
	for _, test := range []struct{ action, args, line, body string }{
		{"create_event", `{"summary":"s","start":"2026-11-23T10:00:00+01:00","end":"2026-11-23T11:00:00+01:00"}`, "POST " + primary + "?sendUpdates=none",
			`{"summary":"s","start":{"dateTime":"2026-11-23T10:00:00+01:00"},"end":{"dateTime":"2026-11-23T11:00:00+01:00"}}`},
		{"create_event", `{"summary":"s","start":"2026-11-23T10:00:00","end":"2026-11-23T11:00:00","time_zone":"Europe/Berlin","location":"l","description":"d","attendees":["Bob <bob@example.org>"],"send_updates":"all"}`,
			"POST " + primary + "?sendUpdates=all",
			`{"summary":"s","description":"d","location":"l","start":{"dateTime":"2026-11-23T10:00:00","timeZone":"Europe/Berlin"},"end":{"dateTime":"2026-11-23T11:00:00","timeZone":"Europe/Berlin"},"attendees":[{"email":"bob@example.org","displayName":"Bob"}]}`},
		{"create_event", `{"summary":"s","start":"2026-12-24","end":"2026-12-27"}`, "POST " + primary + "?sendUpdates=none",
			`{"summary":"s","start":{"date":"2026-12-24"},"end":{"date":"2026-12-27"}}`},
		{"update_event", `{"event_id":"e1","summary":"","location":""}`, "PATCH " + primary + "/e1?sendUpdates=none", `{"summary":"","location":""}`},
		{"update_event", `{"event_id":"e1","start":"2026-12-24","end":"2026-12-25"}`, "PATCH " + primary + "/e1?sendUpdates=none",
			`{"start":{"dateTime":null,"date":"2026-12-24"},"end":{"dateTime":null,"date":"2026-12-25"}}`},
		{"update_event", `{"event_id":"e1","start":"2026-12-24T10:00:00Z","end":"2026-12-24T11:00:00Z","time_zone":"UTC"}`, "PATCH " + primary + "/e1?sendUpdates=none",
			`{"start":{"dateTime":"2026-12-24T10:00:00Z","date":null,"timeZone":"UTC"},"end":{"dateTime":"2026-12-24T11:00:00Z","date":null,"timeZone":"UTC"}}`},
		{"delete_event", `{"event_id":"e1","send_updates":"externalOnly"}`, "DELETE " + primary + "/e1?sendUpdates=externalOnly", ``},
	} {
		u.do("google_calendar."+test.action, test.args)
		if s := u.take(); len(s) != 1 || s[0].line != test.line || s[0].body != test.body {
			t.Errorf("%s %s: %+v", test.action, test.args, s)
		}
	}
	for _, test := range []struct{ action, args string }{
		{"create_event", `{"summary":"s","start":"2026-11-23T10:00:00","end":"2026-11-23T11:00:00"}`},
		{"create_event", `{"summary":"s","start":"2026-11-23","end":"2026-11-23T11:00:00Z"}`},
		{"create_event", `{"summary":"s","start":"2026-11-23","end":"2026-11-23"}`},
		{"create_event", `{"summary":"s","start":"2026-11-23T11:00:00+01:00","end":"2026-11-23T10:30:00+01:00"}`},
		{"create_event", `{"summary":"s","start":"noon","end":"later"}`},
		{"create_event", `{"summary":"s"}`},
		{"create_event", `{"start":"2026-11-23","end":"2026-11-24"}`},
		{"create_event", `{"summary":"s","start":"2026-11-23","end":"2026-11-24","attendees":["nobody"]}`},
		{"create_event", `{"summary":"s","start":"2026-11-23","end":"2026-11-24","send_updates":"some"}`},
		{"update_event", `{"event_id":"e1"}`},
		{"update_event", `{"event_id":"e1","start":"2026-11-23"}`},
		{"update_event", `{"event_id":"e1/../../x","summary":"s"}`},
		{"delete_event", `{}`},
	} {
		if e := u.refused("google_calendar."+test.action, test.args); e.Code != CodeInvalid {
			t.Errorf("%s %s: %+v", test.action, test.args, e)
		}
	}
	u.asked()
}
