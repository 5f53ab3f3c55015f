package controlplane

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// An operation is what a command is to do, with nothing in it that we don't
// know.
type operation struct {
	Kind   string
	Op     json.RawMessage // as it is signed; of env.apply with its values, until seal
	Target protocol.CommandTarget
	TTLMs  int64
	Needs  []protocol.Capability // all of them
}

// audience says who executes the operation.
func (op *operation) audience() string {
	if op.Target.ExtensionID != "" {
		return jws.AudienceExtension
	}
	return jws.AudienceAgent
}

// parseOperation checks what user wants done. An operation that this version
// doesn't know is KindUnsupported, everything else that is wrong KindInvalid,
// and what no user may have done in this way KindForbidden.
func parseOperation(raw json.RawMessage, t target, ttlMs *int64, user protocol.UserID) (operation, error) {
	var plain opPlain
	if err := protocol.UnmarshalObject(raw, &plain); err != nil {
		return operation{}, protocol.Errorf(protocol.KindInvalid, "op: %v", err)
	}
	op := operation{Kind: plain.Kind, TTLMs: protocol.DefaultCommandTTL.Milliseconds()}
	if plain.Kind == "" {
		return op, protocol.Errorf(protocol.KindInvalid, "op.kind is missing")
	}
	form, known := opForms[op.Kind]
	switch {
	case op.Kind == protocol.OpGrantRevoke:
		return op, protocol.Errorf(protocol.KindForbidden, "%s is made by the control plane alone: see DELETE /grants/{id}", op.Kind)
	case op.Kind == protocol.OpIntegrationsChanged:
		return op, protocol.Errorf(protocol.KindForbidden, "%s is made by the control plane alone", op.Kind)
	case !known:
		return op, protocol.Errorf(protocol.KindUnsupported, "unknown operation %q", op.Kind)
	}
	if ttlMs != nil {
		op.TTLMs = *ttlMs
	}
	if op.TTLMs <= 0 || op.TTLMs > protocol.MaxCommandTTL.Milliseconds() {
		return op, protocol.Errorf(protocol.KindInvalid, "ttlMs must be from 1 to %d", protocol.MaxCommandTTL.Milliseconds())
	}
	var err error
	if op.Target, err = t.resolve(); err != nil {
		return op, err
	}
	if op.Kind == protocol.OpTerminalShare {
		if err := nameShared(raw, &op.Target); err != nil {
			return op, err
		}
	}
	if err := checkTarget(op.Kind, form.target, op.Target); err != nil {
		return op, err
	}
	var more []protocol.Capability
	if op.Op, more, err = form.canonical(raw, user); err != nil {
		return op, err
	}
	op.Needs = append([]protocol.Capability{protocol.OperationCapability[op.Kind]}, more...)
	return op, nil
}

// A canonicalFunc decodes an op strictly and encodes it anew, so that what is
// signed is exactly what was checked. It returns the capabilities that the op's
// members need beyond the one of its kind.
type canonicalFunc func(raw json.RawMessage, user protocol.UserID) (json.RawMessage, []protocol.Capability, error)

// opForms holds every operation that users may have done.
var opForms = map[string]struct {
	target    targetForm
	canonical canonicalFunc
}{
	protocol.OpSessionCreate: {targetSandbox, canonical(checkSession)},
	protocol.OpSessionDelete: {targetSession, canonical(checkPlain)},
	protocol.OpPTYCreate:     {targetNewPTY, canonical(checkCreate)},
	protocol.OpPTYClose:      {targetPTY, canonical(checkPlain)},
	protocol.OpPTYSignal:     {targetPTY, canonical(checkSignal)},
	protocol.OpPTYResize:     {targetPTY, canonical(checkResize)},
	protocol.OpRecordStart:   {targetPTY, canonical(checkPlain)},
	protocol.OpRecordStop:    {targetPTY, canonical(checkPlain)},
	protocol.OpAgentStart:    {targetPTY, canonical(checkStart)},
	protocol.OpAgentPause:    {targetPTY, canonical(checkPlain)},
	protocol.OpAgentResume:   {targetPTY, canonical(checkPlain)},
	protocol.OpAgentStop:     {targetPTY, canonical(checkPlain)},
	protocol.OpCDPSend:       {targetBrowser, canonical(checkCDP)},
	protocol.OpEnvApply:      {targetTerminals, canonical(checkEnv)},
	protocol.OpEgressDecide:  {targetSession, canonical(checkEgress)},
	protocol.OpEgressRevoke:  {targetSession, canonical(checkEgressRevoke)},
	protocol.OpBrokerDecide:  {targetSession, canonical(checkBroker)},
	protocol.OpTerminalShare: {targetPTY, canonical(checkShare)},
}

// canonical makes the function of one form of op from what checks it.
func canonical[T any](check func(op *T, user protocol.UserID) ([]protocol.Capability, error)) canonicalFunc {
	known := memberNames(reflect.TypeFor[T]())
	return func(raw json.RawMessage, user protocol.UserID) (json.RawMessage, []protocol.Capability, error) {
		var op T
		if err := protocol.UnmarshalStrict(raw, &op); err != nil {
			return nil, nil, opError(err)
		}
		// encoding/json takes "Signal" for "signal", and an executor may not.
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, nil, protocol.Errorf(protocol.KindInvalid, "op: %v", err)
		}
		for name := range members {
			if !slices.Contains(known, name) {
				return nil, nil, protocol.Errorf(protocol.KindInvalid, "op: unknown field %q", name)
			}
		}
		more, err := check(&op, user)
		if err != nil {
			return nil, nil, err
		}
		data, err := json.Marshal(op)
		return data, more, err
	}
}

// opError says why an op can't be decoded. encoding/json quotes a number that
// stands where something else belongs, and that may be a secret.
func opError(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return protocol.Errorf(protocol.KindInvalid, "op: %s has the wrong type", e.Field)
	}
	return protocol.Errorf(protocol.KindInvalid, "op: %v", err)
}

// memberNames returns the names of a struct's members in JSON.
func memberNames(t reflect.Type) (names []string) {
	for field := range t.Fields() {
		if field.Anonymous {
			names = append(names, memberNames(field.Type)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

type opPlain struct {
	Kind string `json:"kind"`
}

func checkPlain(*opPlain, protocol.UserID) ([]protocol.Capability, error) { return nil, nil }

type opCreate struct {
	Kind string `json:"kind"`
	protocol.PTYCreate
}

func checkCreate(op *opCreate, user protocol.UserID) ([]protocol.Capability, error) {
	if op.CreatorID != "" && op.CreatorID != user {
		return nil, protocol.Errorf(protocol.KindForbidden, "op.creatorId can only be yourself")
	}
	if op.CreatorName != "" {
		return nil, protocol.Errorf(protocol.KindForbidden, "op.creatorName is not yours to say")
	}
	if op.Cols < 0 || op.Rows < 0 || op.Cols > maxUint16 || op.Rows > maxUint16 {
		return nil, protocol.Errorf(protocol.KindInvalid, "op.cols and op.rows must be from 0 (default) to %d", maxUint16)
	}
	op.CreatorID = user
	if op.Record {
		return []protocol.Capability{protocol.CapRecord}, nil
	}
	return nil, nil
}

const maxUint16 = 1<<16 - 1

type opSignal struct {
	Kind string `json:"kind"`
	protocol.PTYSignal
}

func checkSignal(op *opSignal, _ protocol.UserID) ([]protocol.Capability, error) {
	if op.Signal == "" {
		return nil, protocol.Errorf(protocol.KindInvalid, "op.signal is missing")
	}
	return nil, nil
}

type opResize struct {
	Kind string `json:"kind"`
	protocol.PTYResize
}

func checkResize(op *opResize, _ protocol.UserID) ([]protocol.Capability, error) {
	if op.Cols < protocol.MinCols || op.Cols > protocol.MaxCols || op.Rows < protocol.MinRows || op.Rows > protocol.MaxRows {
		return nil, protocol.Errorf(protocol.KindInvalid, "op.cols must be from %d to %d, op.rows from %d to %d",
			protocol.MinCols, protocol.MaxCols, protocol.MinRows, protocol.MaxRows)
	}
	return nil, nil
}

type opStart struct {
	Kind string `json:"kind"`
	protocol.AgentStart
}

// checkStart: whoever says what is run has a shell.
func checkStart(op *opStart, _ protocol.UserID) ([]protocol.Capability, error) {
	if op.Name == "" && op.Command == "" {
		return nil, protocol.Errorf(protocol.KindInvalid, "op.name or op.command is missing")
	}
	if len(op.Name) > protocol.MaxAgentNameBytes {
		return nil, protocol.Errorf(protocol.KindInvalid, "op.name is longer than %d bytes", protocol.MaxAgentNameBytes)
	}
	if op.Command != "" || len(op.Args) > 0 {
		return []protocol.Capability{protocol.CapShell}, nil
	}
	return nil, nil
}

type opCDP struct {
	Kind string `json:"kind"`
	protocol.CDPSend
}

// checkCDP wants a method of the debugger's protocol, "Domain.method", and an
// object of parameters, both as the list that the executors have allows them:
// nobody's key signs what no browser may be asked.
func checkCDP(op *opCDP, _ protocol.UserID) ([]protocol.Capability, error) {
	if !validCDPMethod(op.Method) {
		return nil, protocol.Errorf(protocol.KindInvalid, "op.method must have the form Domain.method")
	}
	if _, err := protocol.CheckCDP(op.CDPSend); err != nil {
		return nil, protocol.Errorf(protocol.KindOf(err), "op: %v", err)
	}
	return nil, nil
}

const maxCDPMethod = 128

func validCDPMethod(method string) bool {
	dots := 0
	for i := range len(method) {
		switch c := method[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9' && i > 0:
		case c == '.' && i > 0 && i < len(method)-1:
			dots++
		default:
			return false
		}
	}
	return dots == 1 && len(method) <= maxCDPMethod
}
