package account

import "strings"

// startFiles are the start files of a home. They set a short prompt, which
// doesn't show a nameless user, and silently read [EnvFile] when it has
// changed.
//
// Before each prompt bash and zsh write their process id into [PromptFile]. If
// [RunFile] names a command, that command has just ended: they remove the name,
// write it with the exit status into [RanFile], and print both in OSC 133 D,
// the terminals' mark for the end of a command.
var startFiles = map[string]string{
	// The system's own start files reset PATH and would drop what this user has
	// installed.
	".profile": `case ":$PATH:" in
*":$HOME/.local/bin:"*) ;;
*) PATH="$PATH:$HOME/.local/bin" ;;
esac
if [ -n "${BASH_VERSION-}" ]; then
	. "$HOME/.bashrc"
else
	PS1='sandbox:$PWD$ '
	if [ -r "$HOME/@DIR@/@ENV@" ]; then . "$HOME/@DIR@/@ENV@"; fi
fi
`,
	".bashrc": `PS1='\[\e[1;32m\]sandbox\[\e[0m\]:\[\e[1;34m\]\W\[\e[0m\]\$ '
HISTCONTROL=ignoreboth
if command -v dircolors >/dev/null; then eval "$(dircolors -b)"; fi
alias ls='ls --color=auto'
alias grep='grep --color=auto'
__fairlead_env() {
	{ local status=$? line= -; set +xv; } 2>/dev/null
	if [ -r "$HOME/@DIR@/@ENV@" ] && IFS= read -r line <"$HOME/@DIR@/@ENV@" && [ "$line" != "${__fairlead_seen-}" ]; then
		__fairlead_seen=$line
		. "$HOME/@DIR@/@ENV@"
	fi
	if [ -d "$HOME/@DIR@" ]; then
		{ printf '%s\n' "$$" >|"$HOME/@DIR@/@PROMPT@"; } 2>/dev/null || :
		if [ -s "$HOME/@DIR@/@RUN@" ] && IFS= read -r line <"$HOME/@DIR@/@RUN@"; then
			: >|"$HOME/@DIR@/@RUN@"
			printf '%s %s\n' "$line" "$status" >|"$HOME/@DIR@/@RAN@"
			printf '\033]133;D;%s;%s\033\\' "$status" "$line"
		fi
	fi
	return $status
}
PROMPT_COMMAND="__fairlead_env${PROMPT_COMMAND:+;$PROMPT_COMMAND}"
`,
	".zshrc": `case ":$PATH:" in
*":$HOME/.local/bin:"*) ;;
*) PATH="$PATH:$HOME/.local/bin" ;;
esac
PROMPT='%B%F{green}sandbox%f%b:%B%F{blue}%1~%f%b%# '
PROMPT_EOL_MARK=
__fairlead_env() {
	{ local code=$? line=; setopt localoptions noxtrace noverbose; } 2>/dev/null
	if [[ -r $HOME/@DIR@/@ENV@ ]] && IFS= read -r line <$HOME/@DIR@/@ENV@ && [[ $line != ${__fairlead_seen-} ]]; then
		typeset -g __fairlead_seen=$line
		. $HOME/@DIR@/@ENV@
	fi
	if [[ -d $HOME/@DIR@ ]]; then
		{ print -r -- $$ >|$HOME/@DIR@/@PROMPT@ } 2>/dev/null
		if [[ -s $HOME/@DIR@/@RUN@ ]] && IFS= read -r line <$HOME/@DIR@/@RUN@; then
			: >|$HOME/@DIR@/@RUN@
			print -r -- $line $code >|$HOME/@DIR@/@RAN@
			printf '\033]133;D;%s;%s\033\\' $code $line
		fi
	fi
}
precmd_functions+=(__fairlead_env)
`,
}

// startFile returns the text of a start file.
func startFile(name string) []byte {
	names := strings.NewReplacer("@DIR@", Dir, "@ENV@", EnvFile, "@PROMPT@", PromptFile, "@RUN@", RunFile, "@RAN@", RanFile)
	return []byte(names.Replace(startFiles[name]))
}
