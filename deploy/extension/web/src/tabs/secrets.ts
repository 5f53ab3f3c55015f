// What parameters that hold secrets are called, as protocol/taburl has it:
// go test ./deploy/extension -run TestSecretNames -update
export const within: readonly string[] = ['password', 'passwd', 'pwd', 'token', 'secret', 'key', 'auth', 'bearer', 'signature', 'credential', 'jwt'];
export const whole: readonly string[] = ['code', 'sig', 'sid', 'otp'];
