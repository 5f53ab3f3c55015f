package provider

import "strconv"

// PartID is the id of part i of what a coding agent has said, a thought or the
// use of a tool, in the row or line uuid.
func PartID(uuid string, i int) string { return uuid + "_" + strconv.Itoa(i) }

// UserTextID is the id of text i of a person's message that has parts, in the
// row or line uuid. A message that is a plain string has the id uuid.
func UserTextID(uuid string, i int) string { return uuid + "_text_" + strconv.Itoa(i) }

// ToolResultID is the id of the result of a tool's use in the row or line uuid.
func ToolResultID(uuid, toolUse string) string { return uuid + "_tr_" + toolUse }

// EventID is the id of the message's event, equal to the one that its row has in
// history.
func (t Turn) EventID() string {
	if len(t.Images) == 0 && t.Context == "" {
		return t.ID
	}
	return UserTextID(t.ID, 0)
}
