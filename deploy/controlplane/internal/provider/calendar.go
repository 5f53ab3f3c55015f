package provider

import (
	"context"
	"net/http"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var calendarActions = []action{
	reads("google_calendar.list_events", listEvents),
	reads("google_calendar.get_event", getEvent),
	writes("google_calendar.create_event", createEvent),
	writes("google_calendar.update_event", updateEvent),
	writes("google_calendar.delete_event", deleteEvent),
	reads("google_calendar.search_events", searchEvents),
}

const (
	maxEvents      = 250
	maxAttendees   = 200
	maxDescription = 8 << 10
)

// A calendarID names a calendar; without one it is the account's own.
type calendarID struct {
	Calendar string `json:"calendar_id,omitempty"`
}

func (c *calendarID) id() string { return or(c.Calendar, "primary") }

func (c *calendarID) resources() []Resource { return []Resource{{KindCalendar, c.id()}} }

func (c *calendarID) check() error {
	if id := c.id(); id == "." || id == ".." || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' }) {
		return invalid("calendar_id is not an id")
	}
	return checkText("calendar_id", c.Calendar, 256)
}

func (c *calendarID) path(event string) string {
	p := "/calendar/v3/calendars/" + url.PathEscape(c.id()) + "/events"
	if event != "" {
		p += "/" + url.PathEscape(event)
	}
	return p
}

// An eventTime is when an event begins or ends: a time of one day, or all of it.
type eventTime struct {
	DateTime string `json:"dateTime,omitempty"` // RFC 3339; without an offset only beside TimeZone
	Date     string `json:"date,omitempty"`     // 2006-01-02
	TimeZone string `json:"timeZone,omitempty"` // Europe/Berlin
}

// localTime is RFC 3339 without an offset.
const localTime = "2006-01-02T15:04:05"

// newEventTime reads a time as people write it. The second result orders times
// of one kind.
func newEventTime(name, text, zone string) (*eventTime, time.Time, error) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return &eventTime{Date: text}, t, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return &eventTime{DateTime: text, TimeZone: zone}, t, nil
	}
	t, err := time.Parse(localTime, text)
	switch {
	case err != nil:
		return nil, t, invalid("%s: want 2006-01-02T15:04:05Z or, for all of a day, 2006-01-02", name)
	case zone == "":
		return nil, t, invalid("%s has no offset from UTC: add one, or time_zone", name)
	}
	return &eventTime{DateTime: text, TimeZone: zone}, t, nil
}

// An event is one as Google Calendar writes it, as far as we pass it on.
type event struct {
	ID          string     `json:"id,omitempty"`
	Status      string     `json:"status,omitempty"` // confirmed, tentative or cancelled
	Summary     string     `json:"summary,omitempty"`
	Description string     `json:"description,omitempty"`
	Location    string     `json:"location,omitempty"`
	Start       *eventTime `json:"start,omitempty"`
	End         *eventTime `json:"end,omitempty"` // of whole days: the day after the last
	Attendees   []attendee `json:"attendees,omitempty"`
	Organizer   *attendee  `json:"organizer,omitempty"`
	Link        string     `json:"htmlLink,omitempty"`
	RecurringID string     `json:"recurringEventId,omitempty"`
	Recurrence  []string   `json:"recurrence,omitempty"`
	Updated     string     `json:"updated,omitempty"`
}

type attendee struct {
	Email    string `json:"email,omitempty"`
	Name     string `json:"displayName,omitempty"`
	Response string `json:"responseStatus,omitempty"` // needsAction, declined, tentative or accepted
}

// events is the answer of events.list, and ours.
type events struct {
	Events   []event `json:"items"`
	TimeZone string  `json:"timeZone,omitempty"` // of the calendar
	NextPage string  `json:"nextPageToken,omitempty"`
}

type listEventsArgs struct {
	calendarID
	TimeMin    string `json:"time_min,omitempty"`
	TimeMax    string `json:"time_max,omitempty"`
	MaxResults int    `json:"max_results,omitempty"`
	PageToken  string `json:"page_token,omitempty"`
}

func (l *listEventsArgs) check() error {
	for name, text := range map[string]string{"time_min": l.TimeMin, "time_max": l.TimeMax} {
		if _, err := time.Parse(time.RFC3339, text); text != "" && err != nil {
			return invalid("%s: want 2006-01-02T15:04:05Z", name)
		}
	}
	return firstError(l.calendarID.check(), checkCount("max_results", l.MaxResults, maxEvents),
		checkText("page_token", l.PageToken, 2048))
}

// query asks for single events in their order: what repeats is told once for
// each time that it takes place.
func (l *listEventsArgs) query() url.Values {
	q := url.Values{
		"singleEvents": {"true"}, "orderBy": {"startTime"},
		"maxResults": {strconv.Itoa(or(l.MaxResults, 25))},
	}
	setUnlessEmpty(q, "timeMin", l.TimeMin)
	setUnlessEmpty(q, "timeMax", l.TimeMax)
	setUnlessEmpty(q, "pageToken", l.PageToken)
	return q
}

func setUnlessEmpty(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func (a *api) events(ctx context.Context, l *listEventsArgs, q url.Values) (*events, error) {
	found := &events{}
	if _, err := a.json(ctx, request{method: http.MethodGet, path: l.path(""), query: q}, nil, found); err != nil {
		return nil, err
	}
	if found.Events == nil {
		found.Events = []event{}
	}
	return found, nil
}

func listEvents(ctx context.Context, a *api, args *listEventsArgs) (*events, error) {
	return a.events(ctx, args, args.query())
}

type searchEventsArgs struct {
	listEventsArgs
	Query string `json:"query"`
}

func (s *searchEventsArgs) check() error {
	return firstError(s.listEventsArgs.check(), checkLine("query", s.Query, 1024))
}

func searchEvents(ctx context.Context, a *api, args *searchEventsArgs) (*events, error) {
	q := args.query()
	q.Set("q", args.Query)
	return a.events(ctx, &args.listEventsArgs, q)
}

type eventArgs struct {
	calendarID
	Event string `json:"event_id"`
}

func (e *eventArgs) check() error {
	return firstError(e.calendarID.check(), checkID("event_id", e.Event))
}

func getEvent(ctx context.Context, a *api, args *eventArgs) (*event, error) {
	found := &event{}
	_, err := a.json(ctx, request{method: http.MethodGet, path: args.path(args.Event)}, nil, found)
	return found, err
}

// eventFields are what an event is made of and changed by.
type eventFields struct {
	Description *string  `json:"description,omitempty"`
	Location    *string  `json:"location,omitempty"`
	TimeZone    string   `json:"time_zone,omitempty"`
	Attendees   []string `json:"attendees,omitempty"`
	SendUpdates string   `json:"send_updates,omitempty"`
}

func (f *eventFields) check() error {
	if len(f.Attendees) > maxAttendees {
		return invalid("attendees: more than %d", maxAttendees)
	}
	for _, who := range f.Attendees {
		if _, err := mail.ParseAddress(who); err != nil {
			return invalid("attendees: %q is not an address", words(who))
		}
	}
	return firstError(
		checkText("description", value(f.Description), maxDescription), checkText("location", value(f.Location), 1024),
		checkText("time_zone", f.TimeZone, 64), checkOneOf("send_updates", f.SendUpdates, "none", "all", "externalOnly"),
	)
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// An eventBody is what we send: a member that is absent leaves what is there.
type eventBody struct {
	Summary     *string    `json:"summary,omitempty"`
	Description *string    `json:"description,omitempty"`
	Location    *string    `json:"location,omitempty"`
	Start       any        `json:"start,omitempty"` // an eventTime, or a patchTime
	End         any        `json:"end,omitempty"`
	Attendees   []attendee `json:"attendees,omitempty"`
}

// A patchTime says also what an event's time is not any more: a change only
// adds members otherwise, and an event of whole days can't have a time as well.
type patchTime struct {
	DateTime *string `json:"dateTime"`
	Date     *string `json:"date"`
	TimeZone string  `json:"timeZone,omitempty"`
}

func newPatchTime(t *eventTime) patchTime {
	if t.Date != "" {
		return patchTime{Date: &t.Date}
	}
	return patchTime{DateTime: &t.DateTime, TimeZone: t.TimeZone}
}

// body returns the event's body. start and end may both be empty.
func (f *eventFields) body(summary *string, start, end string) (*eventBody, error) {
	b := &eventBody{Summary: summary, Description: f.Description, Location: f.Location}
	for _, who := range f.Attendees {
		addr, err := mail.ParseAddress(who)
		if err != nil {
			return nil, invalid("attendees: %q is not an address", words(who))
		}
		b.Attendees = append(b.Attendees, attendee{Email: addr.Address, Name: addr.Name})
	}
	if start == "" && end == "" {
		return b, nil
	}
	from, begins, err := newEventTime("start", start, f.TimeZone)
	if err != nil {
		return nil, err
	}
	to, ends, err := newEventTime("end", end, f.TimeZone)
	switch {
	case err != nil:
		return nil, err
	case (from.Date == "") != (to.Date == ""):
		return nil, invalid("start and end must both be times or both be days")
	case from.Date != "" && !ends.After(begins):
		return nil, invalid("end must be the day after the last")
	case ends.Before(begins) && sameClock(start, end):
		return nil, invalid("end is before start")
	}
	b.Start, b.End = from, to
	return b, nil
}

// sameClock reports whether both times have an offset, or neither: only then
// can we tell which is earlier.
func sameClock(a, b string) bool {
	_, errA := time.Parse(time.RFC3339, a)
	_, errB := time.Parse(time.RFC3339, b)
	return (errA == nil) == (errB == nil)
}

// send writes an event. Nobody is told of it unless that is asked for.
func (f *eventFields) send(ctx context.Context, a *api, method, path string, body any) (*event, error) {
	written := &event{}
	q := url.Values{"sendUpdates": {or(f.SendUpdates, "none")}}
	_, err := a.json(ctx, request{method: method, path: path, query: q}, body, written)
	return written, err
}

type createEventArgs struct {
	calendarID
	Summary string `json:"summary"`
	Start   string `json:"start"`
	End     string `json:"end"`
	eventFields
}

func (c *createEventArgs) check() error {
	if err := firstError(c.calendarID.check(), checkLine("summary", c.Summary, 1024), c.eventFields.check()); err != nil {
		return err
	}
	if c.Start == "" || c.End == "" {
		return invalid("start and end are missing")
	}
	_, err := c.body(&c.Summary, c.Start, c.End)
	return err
}

func createEvent(ctx context.Context, a *api, args *createEventArgs) (*event, error) {
	body, err := args.body(&args.Summary, args.Start, args.End)
	if err != nil {
		return nil, err
	}
	return args.send(ctx, a, http.MethodPost, args.path(""), body)
}

type updateEventArgs struct {
	eventArgs
	Summary *string `json:"summary,omitempty"`
	Start   string  `json:"start,omitempty"`
	End     string  `json:"end,omitempty"`
	eventFields
}

func (u *updateEventArgs) check() error {
	if err := firstError(u.eventArgs.check(), checkText("summary", value(u.Summary), 1024), u.eventFields.check()); err != nil {
		return err
	}
	if (u.Start == "") != (u.End == "") {
		return invalid("start and end change together")
	}
	body, err := u.body(u.Summary, u.Start, u.End)
	if err == nil && body.Summary == nil && body.Description == nil && body.Location == nil && body.Start == nil && body.Attendees == nil {
		err = invalid("nothing is to be changed")
	}
	return err
}

func updateEvent(ctx context.Context, a *api, args *updateEventArgs) (*event, error) {
	body, err := args.body(args.Summary, args.Start, args.End)
	if err != nil {
		return nil, err
	}
	if from, ok := body.Start.(*eventTime); ok {
		body.Start, body.End = newPatchTime(from), newPatchTime(body.End.(*eventTime))
	}
	return args.send(ctx, a, http.MethodPatch, args.path(args.Event), body)
}

type deleteEventArgs struct {
	eventArgs
	SendUpdates string `json:"send_updates,omitempty"`
}

func (d *deleteEventArgs) check() error {
	return firstError(d.eventArgs.check(), checkOneOf("send_updates", d.SendUpdates, "none", "all", "externalOnly"))
}

// deleted is the answer where a provider has none.
type deleted struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

func deleteEvent(ctx context.Context, a *api, args *deleteEventArgs) (*deleted, error) {
	q := url.Values{"sendUpdates": {or(args.SendUpdates, "none")}}
	_, err := a.json(ctx, request{method: http.MethodDelete, path: args.path(args.Event), query: q}, nil, nil)
	return &deleted{args.Event, true}, err
}
