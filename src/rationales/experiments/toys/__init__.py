"""The paper's toys: small models, trained from scratch, that show what compatibility is."""
