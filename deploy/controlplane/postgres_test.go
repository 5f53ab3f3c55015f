package controlplane

import "testing"

// TestOnPostgres runs the tests in which the database has the most to do on the
// other database. The store's own tests run whole on both.
func TestOnPostgres(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Members": TestMembers, "ItemVersion": TestItemVersion, "Usage": TestUsage, "SignIn": TestSignIn, "Edges": TestEdges,
		"CommandKey": TestCommandKey, "SignParallel": TestSignParallel,
		"Connect": TestConnect, "Attach": TestAttach, "Gateway": TestGateway, "Renewal": TestRenewal,
	} {
		t.Run(name, test)
	}
}
