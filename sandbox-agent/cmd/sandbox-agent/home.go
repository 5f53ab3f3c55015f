package main

// credentialsFile is where a terminal's home says how its programs reach the
// agent.
const credentialsFile = ".fairlead/mcp.json"
